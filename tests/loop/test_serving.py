"""The servers of a run over its stages, against a process that speaks vLLM's HTTP."""

from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.serve.fakes import adapter, fake_python, look, weights
from tests.serve.one_machine import OneMachine
from tests.train.fake_checkpoints import published
from webgym_cli.config.load import load
from webgym_cli.jobs import ray_cluster
from webgym_cli.loop.serving import Serving
from webgym_cli.serve import execute
from webgym_cli.serve.weights import digest
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.util.files import read_json, write_json


@pytest.fixture
async def serving(tmp_path, monkeypatch):
    """Returns how to make the servers of a run whose first policy is the base model."""
    monkeypatch.setattr(execute, "POLL_SECONDS", 0.02)
    servings = []

    def make(*overrides):
        base, python = weights(tmp_path / "base", b"one"), fake_python(tmp_path)
        given = ["serve.port=0", f"policy_config.base_model={base}", f"venvs.serve={python}", *overrides]
        run, settings = RunDir(tmp_path / "run"), load(overrides=given)
        create_or_open(run, settings)
        servings.append(Serving(run, settings, tmp_path / "logs", lambda event: None))
        return servings[-1]

    yield make
    for one in servings:
        await one.stop()


SERVER_EVENTS = ("serve", "swap", "wake", "sleep", "stop")


def trained(run, content):
    """A training has published a checkpoint."""
    folder = published(run, 1)
    weights(folder, content)
    return str(folder.resolve())


def kept(run):
    def row(event):
        return event["event"], event.get("how"), event.get("model", "").rpartition("/")[2]

    return [row(event) for event in read_events(run, *SERVER_EVENTS)]


async def test_on_gpus_the_servers_sleep_while_a_training_runs(serving):
    one = serving("venvs.device=cuda", "serve.replicas=1")
    urls = await one.current()
    pid = (await look(urls[0]))["pid"]
    await one.release_gpus()
    trained(one.run, b"two")
    assert await one.current() == urls
    assert (await look(urls[0]))["pid"] == pid
    rows = [("serve", None, "base"), ("sleep", None, ""), ("wake", "in_place", "model_20260101_000000")]
    assert kept(one.run) == rows
    assert all(event["seconds"] >= 0 and "message" not in event for event in read_events(one.run, *SERVER_EVENTS))


async def test_on_a_cpu_the_server_stays_up(serving):
    one = serving("venvs.device=cpu")
    urls = await one.current()
    await one.release_gpus()
    assert await one.current() == urls
    trained(one.run, b"two")
    await one.current()
    assert kept(one.run) == [("serve", None, "base"), ("swap", "in_place", "model_20260101_000000")]
    await one.stop()
    await one.watch()  # none runs


@pytest.fixture
def cluster(monkeypatch):
    """What is connected to where a Ray cluster is: two nodes."""
    nodes = OneMachine(2)
    nodes.connections = 0

    @contextmanager
    def open_cluster(settings):
        nodes.connections += 1
        yield nodes
        nodes.connections -= 1

    monkeypatch.setattr(ray_cluster, "open_cluster", open_cluster)
    return nodes


ON_NODES = ("venvs.device=cuda", "serve.replicas=1", "rollout.executor=ray")


async def test_other_nodes_serve_too_until_the_end_also_during_a_training_on_this_one(serving, cluster):
    one = serving(*ON_NODES)
    urls = await one.current()
    pids = [(await look(url))["pid"] for url in (urls[0], cluster.servers["n1"].base_url)]
    (address,) = one.other_addresses
    assert "@" in urls[1] and "@" not in address and address.startswith("http://127.0.0.1:")
    await one.release_gpus()
    trained(one.run, b"two")
    assert await one.current() == urls
    assert [(await look(url))["pid"] for url in (urls[0], cluster.servers["n1"].base_url)] == pids
    assert [event for event, *_ in kept(one.run)] == ["serve", "sleep", "wake"]  # of this node
    (other,) = one._fleet.others
    await other.stop()
    assert one.other_addresses == ()
    await one.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert cluster.connections == 0


async def test_servers_of_other_nodes_make_room_for_a_training_on_their_nodes(serving, cluster):
    one = serving(*ON_NODES, "train.executor=ray")
    urls = await one.current()
    other = (await look(cluster.servers["n1"].base_url))["pid"]
    await one.release_gpus()
    assert not psutil.pid_exists(other) and one.other_addresses == ()
    assert await one.current() == urls  # clients keep the addresses
    assert (await look(cluster.servers["n1"].base_url))["pid"] != other


async def test_the_nodes_that_the_cluster_has_serve_the_next_rollout(serving, cluster):
    one = serving(*ON_NODES)
    (_, other), late = await one.current(), OneMachine(3).known[2]
    cluster.known.append(late)
    await one.connect()
    assert (await one.current())[1] == other and set(cluster.servers) == {"n1", "n2"}
    cluster.die("n1")
    await one.connect()
    urls = await one.current()
    assert len(urls) == 2 and other not in urls


async def test_other_machines_reach_the_servers_of_this_one_by_a_password(serving, cluster):
    one = serving(*ON_NODES)
    here, other = await one.current()
    async with httpx.AsyncClient(trust_env=False) as client:
        async with one.forwarded_urls("127.0.0.1") as (forwarded, same):
            assert same == other and "@" in forwarded and urlsplit(forwarded).port != urlsplit(here).port
            assert (await client.get(f"{forwarded.removesuffix('/v1')}/health")).status_code == 200
            bare = forwarded.replace(forwarded[7 : forwarded.index("@") + 1], "")
            assert (await client.get(f"{bare.removesuffix('/v1')}/health")).status_code == 401
        with pytest.raises(httpx.ConnectError):
            await client.get(bare)


async def test_a_cluster_without_gpus_elsewhere_is_said(serving, cluster):
    cluster.known = cluster.known[:1]
    one, events = serving(*ON_NODES), []
    one.sink = events.append
    assert len(await one.current()) == 1
    assert any("this one serves alone" in event.get("message", "") for event in events)


LORA = ("train.algorithm=grpo", "rl.model.lora_rank=4")
LAYOUT = {"rank": 4, "alpha": 16, "targets": "all-linear", "vision": False}


def trained_adapter(run, version, content, **layout):
    """A training has published a version whose adapter is on the base model."""
    folder = published(run, version)
    record = read_json(folder / "checkpoint.json")
    base = str(run.root.parent / "base")
    write_json(folder / "checkpoint.json", {**record, "adapter": {"base": base, **LAYOUT, **layout}})
    adapter(folder / "adapter", content)
    return weights(folder, content)


@pytest.mark.parametrize("demonstrated", [0, 1])
async def test_a_lora_policy_is_served_as_one_adapter_a_version_on_the_same_weights(serving, demonstrated):
    one = serving("venvs.device=cpu", *LORA, f"loop.demonstration_iterations={demonstrated}")
    urls = await one.current()
    assert one.policy.model == "" and not await one.serve_beside()
    for version in (1, 2):
        merged = trained_adapter(one.run, version, f"{version}".encode())
        assert await one.serve_beside()
        assert (one.policy.model, one.policy.version.number) == (f"policy-v{version}", version)
        assert one.policy.version.digest == digest(merged)
    assert (await look(urls[0]))["adapters"] == ["policy-v1", "policy-v2"]
    await one.drop_adapters({"policy-v2"})
    assert (await look(urls[0]))["adapters"] == ["policy-v2"]
    await one.stop()
    (url,) = await one.current()  # after a kill
    assert (await look(url))["adapters"] == ["policy-v2"] and one.policy.model == "policy-v2"
    adapters = [("swap", "adapter")] * 2
    assert [item[:2] for item in kept(one.run)] == [("serve", None), *adapters, ("serve", None)]


async def test_in_turns_the_adapter_before_is_dropped(serving):
    one = serving("venvs.device=cpu", *LORA)
    for version in (1, 2):
        trained_adapter(one.run, version, f"{version}".encode())
        (url,) = await one.current()
    assert (await look(url))["adapters"] == ["policy-v2"]


@pytest.mark.parametrize(
    ("overrides", "layout"),
    [
        *(((text,), {}) for text in ("serve.enable_lora=false", "rl.model.freeze_vision_tower=false")),
        *(((), layout) for layout in ({"rank": 64}, {"vision": True}, {"base": "model_19990101_000000"})),
    ],
)
async def test_what_vllm_can_t_serve_by_its_name_is_served_merged(serving, overrides, layout):
    one = serving("venvs.device=cpu", *LORA, *overrides)
    await one.current()
    merged = trained_adapter(one.run, 1, b"1", **layout)
    assert not await one.serve_beside()
    await one.current()
    assert one.policy.model == "" and one.policy.version.digest == digest(merged)
    assert kept(one.run)[-1][:2] == ("swap", "in_place")


async def test_an_adapter_that_does_nothing_is_served_merged(serving, tmp_path):
    one, notes = serving("venvs.device=cpu", *LORA), []
    one.sink = notes.append
    await one.current()
    (tmp_path / "behave.json").write_text('{"adapter": "ignored"}')
    merged = trained_adapter(one.run, 1, b"1")
    assert not await one.serve_beside()
    (url,) = await one.current()
    assert one.policy.model == "" and one.policy.version.digest == digest(merged)
    assert any("merged weights are served" in event.get("message", "") for event in notes)
    assert (await look(url))["adapters"] == []
