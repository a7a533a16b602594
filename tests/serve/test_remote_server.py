"""Servers of other nodes in the fleet of this one, all against processes that speak vLLM's HTTP."""

import asyncio
import hashlib
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.serve.fakes import adapter, fake_python, look, until, weights
from tests.serve.one_machine import OneMachine
from webgym_cli.config.load import load
from webgym_cli.errors import JobError, UsageError
from webgym_cli.jobs import ray_cluster
from webgym_cli.jobs.ray_cluster import NodeActor
from webgym_cli.serve import execute, remote_server
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import plan_servers
from webgym_cli.serve.remote_server import ServerActor, plan_remote_servers
from webgym_cli.serve.weights import Digests


@pytest.fixture
async def new_fleet(tmp_path, monkeypatch):
    """Make the fleet of a cluster: a server of this node, and one on each other node."""
    monkeypatch.setattr(execute, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(remote_server, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(ray_cluster, "MARKER_SECONDS", 1)
    fleets, clusters = [], []

    def make(cluster, *, restarts=0, lora_rank=0, digests=None, phases=False, may_shrink=False):
        given = ["venvs.device=cuda", f"venvs.serve={fake_python(tmp_path)}", "serve.port=0"]
        settings, digests = load(overrides=[*given, "serve.replicas=1"]), digests or Digests()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        plans = plan_servers(settings, "", tmp_path / "python", "cuda", phases=phases, lora_rank=lora_rank)
        opening = settings, tmp_path / "logs", lora_rank
        others = tuple(plan_remote_servers(cluster, tmp_path, opening, make.events.append, digests))
        others = {"others": others, "digests": digests, "may_shrink": may_shrink}
        fleet = Fleet(plans, tmp_path / "logs", make.events.append, restarts=restarts, **others)
        fleets.append(fleet)
        clusters.append(cluster)
        return fleet

    make.events = []
    yield make
    for fleet in fleets:
        await fleet.stop()
    for cluster in clusters:
        for actor in cluster.actors:  # those of nodes that are "dead"
            await actor.close()


async def ask(url, model="policy"):
    """Return the token ids of an answer to a chat; else the status, 0 where nothing listens."""
    async with httpx.AsyncClient(trust_env=False) as client:
        try:
            answer = await client.post(f"{url}/chat/completions", json={"model": model, "messages": []})
        except httpx.TransportError:  # also of a connection that a killed server breaks
            return 0
    return answer.json()["choices"][0]["token_ids"] if answer.status_code == 200 else answer.status_code


def answer_of(*files):
    """Return the token ids with which these weights, and an adapter on them, answer."""
    digests = "".join(hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files)
    return list(hashlib.sha256(digests.encode()).digest()[:4])


async def test_servers_of_all_nodes_swap_together_and_in_place(new_fleet, tmp_path):
    cluster = OneMachine(3)
    fleet = new_fleet(cluster)
    pids = set()
    for content in (b"one", b"two", b"six"):
        model = weights(tmp_path / content.decode(), content)
        await fleet.serve(model)
        assert len(fleet.base_urls) == 3
        expected = answer_of(f"{model}/model.safetensors")
        assert [await ask(url) for url in fleet.base_urls] == [expected] * 3
        pids.add(tuple([(await look(server.base_url))["pid"] for server in cluster.servers.values()]))
    assert len(pids) == 1  # none was started again
    assert len(cluster.actors) == 2
    await fleet.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids.pop())
    swaps = [event for event in new_fleet.events if event["event"] == "swap" and "127.0.0.1" in event["message"]]
    assert [event["how"] for event in swaps] == ["in_place"] * 4
    assert {event["message"].split()[0] for event in swaps} == {"host1", "host2"}


async def test_other_nodes_can_ask_for_answers_alone_and_with_the_password_alone(new_fleet, tmp_path):
    fleet = new_fleet(cluster := OneMachine(2))
    await fleet.serve(weights(tmp_path / "one", b"one"))
    url = fleet.base_urls[1]
    open_url = urlsplit(url)._replace(netloc=url.partition("@")[2].partition("/")[0]).geturl()
    assert await ask(open_url) == 401
    async with httpx.AsyncClient(trust_env=False) as client:
        large = {"model": "policy", "messages": [{"role": "user", "content": "x" * 3 * 2**20}]}
        assert (await client.post(f"{url}/chat/completions", json=large)).status_code == 200
        root = url.removesuffix("/v1")
        assert (await client.get(f"{root}/health")).status_code == 200
        for path in ("/collective_rpc", "/sleep", "/pause", "/v1/load_lora_adapter", "/v1/completions"):
            assert (await client.post(f"{root}{path}", json={})).status_code == 404
        await cluster.servers["n1"].stop()
        assert (await client.get(f"{root}/health")).status_code == 502
    assert all("@" not in str(event) for event in new_fleet.events)


async def test_an_adapter_is_loaded_by_its_name_everywhere(new_fleet, tmp_path):
    fleet, model = new_fleet(OneMachine(3), lora_rank=4), weights(tmp_path / "one", b"one")
    await fleet.serve(model)
    added = adapter(tmp_path / "v1", b"first")
    assert await fleet.add_adapter("policy-v1", added)
    expected = answer_of(f"{model}/model.safetensors", f"{added}/adapter_model.safetensors")
    assert [await ask(url, "policy-v1") for url in fleet.base_urls] == [expected] * 3
    await fleet.drop_adapters({})
    assert [await ask(url, "policy-v1") for url in fleet.base_urls] == [404] * 3


async def test_a_node_that_can_t_load_an_adapter_fails_the_load(new_fleet, tmp_path):
    fleet = new_fleet(cluster := OneMachine(2), lora_rank=4)
    await fleet.serve(weights(tmp_path / "one", b"one"))
    await cluster.servers["n1"].stop()
    assert not await fleet.add_adapter("policy-v1", adapter(tmp_path / "v1", b"first"))


async def test_a_server_that_dies_is_named_and_started_again_where_it_was(new_fleet, tmp_path):
    fleet = new_fleet(cluster := OneMachine(2), restarts=1, lora_rank=4)
    model, added = weights(tmp_path / "one", b"one"), adapter(tmp_path / "v1", b"first")
    await fleet.serve(model)
    assert await fleet.add_adapter("policy-v1", added)
    url, watching = fleet.base_urls[1], asyncio.create_task(fleet.watch())
    os.kill((await look(cluster.servers["n1"].base_url))["pid"], signal.SIGKILL)
    await until(lambda: any(event["event"] == "replica" for event in new_fleet.events))
    async with asyncio.timeout(60):
        while not isinstance(answer := await ask(url, "policy-v1"), list):  # noqa: ASYNC110 - an HTTP server
            await asyncio.sleep(0.05)
    assert answer == answer_of(f"{model}/model.safetensors", f"{added}/adapter_model.safetensors")
    (event,) = [event for event in new_fleet.events if event["event"] == "replica"]
    assert event["again"] and "host1 (127.0.0.1): its policy server is gone" in event["message"]
    assert "@" not in str(event)  # no password
    watching.cancel()


async def test_the_last_server_that_is_awake_ends_the_fleet_with_its_name_when_it_dies(new_fleet, tmp_path):
    fleet = new_fleet(cluster := OneMachine(2), phases=True)
    await fleet.serve(weights(tmp_path / "one", b"one"))
    await fleet.release_gpus()  # of this node
    assert [server.is_serving for server in (*fleet.servers, *fleet.others)] == [False, True]
    os.kill((await look(cluster.servers["n1"].base_url))["pid"], signal.SIGKILL)
    with pytest.raises(JobError, match=r"host1 \(127.0.0.1\): its policy server is gone"):
        async with asyncio.timeout(60):
            await fleet.watch()
    await fleet.serve(model := weights(tmp_path / "two", b"two"))
    assert [await ask(url) for url in fleet.base_urls] == [answer_of(f"{model}/model.safetensors")] * 2


async def test_a_node_that_is_gone_fails_the_swap_with_its_name_and_leaves_no_server(new_fleet, tmp_path):
    fleet = new_fleet(cluster := OneMachine(3))
    await fleet.serve(weights(tmp_path / "one", b"one"))
    pid = (await look(fleet.base_urls[0]))["pid"]
    cluster.die("n2")
    with pytest.raises(JobError, match=r"host2 \(127.0.0.1\) serves no policy: its node died") as caught:
        await fleet.serve(weights(tmp_path / "two", b"two"))
    assert "run the same command again" in caught.value.hint
    assert not psutil.pid_exists(pid) and not any(server.is_serving for server in fleet.others)


@pytest.mark.parametrize("text", ["before its server starts", "before the swap", "at the swap"])
async def test_a_fleet_that_may_shrink_leaves_out_a_node_that_is_gone(new_fleet, tmp_path, monkeypatch, text):
    fleet = new_fleet(cluster := OneMachine(3), may_shrink=True)
    if text == "before its server starts":
        cluster.die("n2")
    await fleet.serve(weights(tmp_path / "one", b"one"))
    if text == "before the swap":
        cluster.die("n2")
    if text == "at the swap":
        change = ServerActor.change

        async def die(self, *arguments):
            cluster.die("n2")
            return await change(self, *arguments)

        monkeypatch.setattr(ServerActor, "change", die)
    await fleet.serve(model := weights(tmp_path / "two", b"two"))
    assert [await ask(url) for url in fleet.base_urls] == [answer_of(f"{model}/model.safetensors")] * 2
    (event,) = [event for event in new_fleet.events if event["event"] == "replica"]
    assert "host2" in event["message"] and not event["again"]
    assert not [event for event in new_fleet.events if event["event"] == "swap_failed"]


async def test_a_server_of_a_node_that_is_still_there_is_not_left_out(new_fleet, tmp_path, monkeypatch):
    fleet = new_fleet(cluster := OneMachine(2), may_shrink=True)
    monkeypatch.setattr(cluster, "nodes", lambda: cluster.known)
    cluster.die("n1")  # its actors
    with pytest.raises(JobError, match=r"host1 .* serves no policy"):
        await fleet.serve(weights(tmp_path / "one", b"one"))


async def test_a_server_that_is_gone_at_a_swap_is_started_with_the_new_weights(new_fleet, tmp_path):
    fleet = new_fleet(cluster := OneMachine(2))
    await fleet.serve(weights(tmp_path / "one", b"one"))
    os.kill((await look(cluster.servers["n1"].base_url))["pid"], signal.SIGKILL)
    await fleet.serve(model := weights(tmp_path / "two", b"two"))
    assert await ask(fleet.base_urls[1]) == answer_of(f"{model}/model.safetensors")


async def test_a_node_that_reads_other_weights_is_refused(new_fleet, tmp_path):
    class Elsewhere(Digests):
        async def of(self, model):
            return "another"

    fleet = new_fleet(OneMachine(2), digests=Elsewhere())
    with pytest.raises(JobError, match=r"host1 .* reads other weights"):
        await fleet.serve(weights(tmp_path / "one", b"one"))


async def test_a_node_that_does_not_see_the_run_is_refused(new_fleet, tmp_path, monkeypatch):
    inspect = NodeActor.inspect

    async def look_elsewhere(self, marker):
        return await inspect(self, marker) | {"visible": False}

    monkeypatch.setattr(NodeActor, "inspect", look_elsewhere)
    with pytest.raises(UsageError, match=r"host1 .* does not see"):
        await new_fleet(OneMachine(2)).serve(weights(tmp_path / "one", b"one"))
