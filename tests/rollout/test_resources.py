"""Who acts: what `--policy` may say, and a rollout that several servers share."""

from contextlib import asynccontextmanager

import pytest

from tests.agent.policy_host import Host
from tests.rollout.in_process import InProcessCluster
from tests.rollout.scripted import CALL, Script, ScriptedPool
from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.errors import UsageError
from webgym_cli.rollout import ray_worker
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.ray_driver import RayRunner
from webgym_cli.rollout.resources import PolicyEndpoint, open_agent, policy_urls
from webgym_cli.rollout.runner import LocalRunner


@pytest.fixture
async def hosts():
    result = [Host(name, CALL) for name in "ab"]
    for host in result:
        await host.start()
    yield result
    for host in result:
        await host.stop()


@pytest.mark.parametrize(
    ("policy", "urls"),
    [
        ("http://a:1/v1", ("http://a:1/v1",)),
        ("http://a/v1,https://a/v1", ("http://a/v1", "https://a/v1")),
        (" http://a:1/v1 ,\thttp://a:2/v1", ("http://a:1/v1", "http://a:2/v1")),
        ("http://[::1]:1/v1,http://a/v1/x", ("http://[::1]:1/v1", "http://a/v1/x")),
    ],
)
def test_base_urls(policy, urls):
    assert policy_urls(policy) == urls


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ("nonsense", "'nonsense' is neither vllm, oracle nor a base URL"),
        ("", "'' is neither"),
        ("http://a/v1,", "'' is neither"),
        ("http://a/v1,,http://b/v1", "'' is neither"),
        ("http://a/v1,ftp://b", "'ftp://b' is neither"),
        ("http://a/v1,vllm", "vllm acts alone, it can't share requests with others"),
        ("oracle,http://a/v1", "oracle acts alone"),
        ("vllm,oracle", "vllm acts alone"),
        ("http://", "'http://' is no address: it names no host"),
        ("http://a/v1,http://:80/v1", "is no address: it names no host"),
        ("http://[::1/v1", "is no address: "),
        ("http://a:b/v1", "is no address: "),
        ("http://a/v1,http://b/v1,http://a/v1", "a:80/v1 is named twice"),
        ("http://a:443/v1,https://A/v1/", "a:443/v1 is named twice"),
        ("http://a/v1,http://$LOGIN@a/v1", "rollout.policy: a:80/v1 is named twice"),
        ("http://me:hidden@a/v1", "rollout.policy: an address holds a key (user)"),
        ("http://a/v1,http://b/v1?token=hidden", "rollout.policy: an address holds a key (token)"),
    ],
)
def test_what_can_not_act_is_refused_in_one_line(policy, named, monkeypatch):
    monkeypatch.setenv("LOGIN", "me:hidden")
    with pytest.raises(UsageError) as caught:
        policy_urls(policy)
    assert str(caught.value).startswith("rollout.policy: ")
    assert named in str(caught.value) and "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value) and caught.value.hint


def shared(summary, hosts):
    servers = summary["servers"]
    assert set(servers) == {host.url for host in hosts}
    assert [servers[host.url]["requests"] for host in hosts] == [host.answered for host in hosts]
    assert all(host.answered for host in hosts)
    return sum(facts["requests"] for facts in servers.values())


@pytest.mark.parametrize("count", [1, 2])
async def test_servers_share_a_rollout_and_stand_in_its_summary(world, hosts, count):
    hosts = hosts[:count]
    acting = PolicyEndpoint(base_urls=tuple(host.url for host in hosts), served=ServedPolicy(name="model"))
    async with open_agent(world.run, world.settings, acting) as agent:
        summary = await world.roll(8, agent=agent)
    assert shared(summary, hosts) == summary["steps"] == 16
    events = world.events_named("status")
    assert set(events[-1]["servers"]) == set(summary["servers"])
    assert {trajectory.policy for trajectory in world.stored} == {"model"}


async def test_a_server_that_names_another_model_is_noted_once(world, hosts):
    hosts[0].model = "base"
    acting = PolicyEndpoint(base_urls=(hosts[0].url,), served=ServedPolicy(name="model"))
    async with open_agent(world.run, world.settings, acting) as agent:
        await world.roll(3, agent=agent)
    assert {step.generation.other_model for trajectory in world.stored for step in trajectory.steps} == {"base"}
    notes = [event["message"] for event in world.events_named("note")]
    assert len(notes) == 1 and "'base'" in notes[0]


async def test_each_rank_balances_by_itself_and_the_summary_adds_them_up(world, hosts, monkeypatch):
    @asynccontextmanager
    async def opener(run, settings, endpoint, environment):
        async with open_agent(run, settings, endpoint) as agent:
            yield LocalRunner(run, settings, agent, ScriptedPool(Script()))

    monkeypatch.setattr(ray_worker, "open_runner", opener)
    urls, served = tuple(host.url for host in hosts), ServedPolicy(name="model")
    endpoint = PolicyEndpoint(base_urls=urls, served=served, logprobs="processed")
    cluster, sink = InProcessCluster(2), world.events.append
    plan = world.plan(8)
    async with RayRunner(world.run, world.settings, cluster, endpoint, endpoint, "tools", sink) as runner:
        summary = await RolloutEngine(plan, world.run, world.settings, runner, sink).execute()
    assert summary["ranks"] == 2
    assert {trajectory.sampling.logprobs for trajectory in world.stored} == {"processed"}
    assert shared(summary, hosts) == summary["steps"] == 16
