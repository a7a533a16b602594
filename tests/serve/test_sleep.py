"""Our servers between two phases, against a process that speaks vLLM's HTTP: sleep, waking, and every way to fail."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from tests.serve.fakes import fake_python, look, until, weights
from webgym_cli.config.load import load
from webgym_cli.errors import JobError, SettingsError
from webgym_cli.jobs.gpu import GpuProcess
from webgym_cli.jobs.guard import descendants
from webgym_cli.serve.plan import plan_servers

PATIENCE = 60
LOADED = ["/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache"]
ASKED = ["/v1/completions", "/v1/chat/completions", "/weight_checker"]


class Memory:
    """NVML's word on processes: each of ours holds so many GiB for as long as it lives."""

    def __init__(self, gib):
        self.gib = gib
        self.seen = set()

    def holders(self):
        self.seen |= set(descendants(os.getpid()))
        return [GpuProcess(pid, 0, int(self.gib * 2**30)) for pid in self.seen if psutil.pid_exists(pid)]


@pytest.fixture
def models(tmp_path):
    """Three folders of weights, the last with those of the first."""
    named = (("first", b"one"), ("second", b"two"), ("again", b"one"))
    return [weights(tmp_path / name, content) for name, content in named]


@pytest.fixture
def fleet(tmp_path, models, monkeypatch, open_fleet):
    """Returns how to make servers, which serve the first model."""
    python = fake_python(tmp_path)

    async def make(*overrides, gpus=("0",), patience=20, memory_gb=10, serves=True, **more):
        settings = load(overrides=["serve.port=0", *overrides])
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(gpus))
        plans = plan_servers(settings, models[0], python, "cuda", phases=True)
        plans = [replace(plan, sleep=replace(plan.sleep, timeout=patience, memory_gb=memory_gb)) for plan in plans]
        one = open_fleet(plans, **more)
        if serves:
            await one.serve(models[0])
        return one

    return make


async def calls(fleet, since=0):
    """Return the POSTs of the first server, from one of them on."""
    return (await look(fleet.base_urls[0]))["calls"][since:]


async def answers(fleet):
    """Return what the servers' weights say."""
    async with httpx.AsyncClient(trust_env=False) as client:
        responses = [await client.post(f"{url}/completions", json={"model": "policy"}) for url in fleet.base_urls]
    return [answer.json()["choices"][0]["token_ids"] for answer in responses]


def list_events(fleet, *names):
    """Return the events of these names that are no progress, without times and words."""
    kept = ("event", "how", "level", "reason")
    events = [event for event in fleet.events if event["event"] in names and "bar" not in event]
    return [{key: event[key] for key in kept if key in event} for event in events]


async def test_it_sleeps_and_wakes_with_the_new_weights(fleet, models):
    one = await fleet()
    before, pid = await answers(one), (await look(one.base_urls[0]))["pid"]
    done = len(await calls(one))
    await one.release_gpus()
    await one.release_gpus()  # it sleeps
    assert await calls(one, done) == ["/sleep?level=2&mode=abort"]
    await one.serve(models[1])
    woken = ["/wake_up?tags=weights", "/collective_rpc", *LOADED, "/wake_up?tags=kv_cache", *ASKED]
    # it had never woken: first it shows with the old weights that it loads what it had dropped
    swapped = ["/v1/completions", "/pause?mode=wait", "/collective_rpc", *LOADED, "/resume", *ASKED]
    assert await calls(one, done + 1) == woken + swapped
    assert await answers(one) != before
    done = len(await calls(one))
    await one.release_gpus()
    await one.serve(models[2])
    assert await calls(one, done + 1) == woken
    assert await answers(one) == before
    assert (await look(one.base_urls[0]))["pid"] == pid
    slept = [{"event": "sleep", "level": 2}, {"event": "wake", "how": "in_place"}]
    assert list_events(one, "sleep", "wake", "stop", "sleep_failed", "wake_failed") == slept * 2


@pytest.mark.parametrize(("how", "reason"), [("refuses", "status 500: "), ("hangs", "ReadTimeout"), ("dies", "Re")])
async def test_one_that_does_not_fall_asleep_is_stopped_and_started_anew(fleet, models, behave, how, reason):
    one = await fleet(patience=1)
    before, pid = await answers(one), one.servers[0].pid
    behave(sleep=how)
    await one.release_gpus()
    assert (one.servers[0].pid, psutil.pid_exists(pid)) == (None, False)
    failed, stopped = list_events(one, "sleep_failed", "stop", "sleep")
    assert failed["reason"].startswith(f"/sleep?level=2&mode=abort: {reason}")
    assert stopped == {"event": "stop"}
    behave()
    await one.serve(models[1])
    assert await answers(one) != before
    assert len(list_events(one, "serve")) == 2


@pytest.mark.parametrize(
    ("about", "how", "reason"),
    [
        ("wake", "refuses", "/wake_up?tags=weights: status 500: "),
        ("wake", "hangs", "/wake_up?tags=weights: ReadTimeout"),
        ("wake", "dies", "/wake_up?tags=weights: Re"),
        ("reload", "stale", "vLLM answers unlike these weights did before"),
    ],
)
async def test_one_that_does_not_wake_well_is_started_anew(fleet, models, behave, about, how, reason):
    one = await fleet(patience=1)
    before, pid = await answers(one), one.servers[0].pid
    await one.release_gpus()
    behave(**{about: how})
    await one.serve(models[1])
    failed, woken = list_events(one, "wake_failed", "wake")
    assert failed["reason"].startswith(reason)
    assert woken == {"event": "wake", "how": "restart"}
    assert one.servers[0].pid != pid and not psutil.pid_exists(pid)
    assert await answers(one) != before


async def test_one_that_died_asleep_is_started_anew(fleet, models):
    one = await fleet()
    before = await answers(one)
    await one.release_gpus()
    os.kill((await look(one.base_urls[0]))["pid"], signal.SIGKILL)
    await until(lambda: one.servers[0]._job.poll() is not None)
    await one.serve(models[0])
    assert list_events(one, "wake_failed")[0]["reason"] == "the server is not running"
    assert await answers(one) == before


# the guard and the server under it: both count
KEEPS = {"event": "sleep_failed", "reason": "it holds 10.0 GiB of the GPU, more than 4"}


@pytest.mark.parametrize(
    ("gib", "events"), [(5, [KEEPS, {"event": "stop"}]), (1, [{"event": "sleep", "level": 2}])], ids=["much", "little"]
)
async def test_memory_that_a_sleeping_server_keeps_is_taken_from_it(fleet, gib, events):
    one = await fleet(memory_gb=4, nvml=Memory(gib))
    await one.release_gpus()
    assert list_events(one, "sleep_failed", "stop", "sleep") == events
    assert (one.servers[0].pid is None) == (gib == 5)


async def test_stop_and_keep_are_what_they_say(fleet, models):
    stops, keeps = [await fleet(f"serve.during_training={how}") for how in ("stop", "keep")]
    for one in (stops, keeps):
        assert "--enable-sleep-mode" not in (await look(one.base_urls[0]))["argv"]
        await one.release_gpus()
    assert [one.servers[0].pid is None for one in (stops, keeps)] == [True, False]
    assert list_events(stops, "stop", "sleep_failed") == [{"event": "stop"}]
    before = await answers(keeps)
    await keeps.serve(models[1])
    assert list_events(keeps, "swap") == [{"event": "swap", "how": "in_place"}]
    assert await answers(keeps) != before


async def test_replicas_have_gpus_ports_and_logs_of_their_own(fleet, models, tmp_path):
    three = await fleet("serve.tensor_parallel_size=2", gpus=("4", "5", "6", "7", "8", "9", "3"))
    rows = [await look(url) for url in three.base_urls]
    assert [one["gpus"] for one in rows] == ["4,5", "6,7", "8,9"]
    assert len({one["pid"] for one in rows}) == len(set(three.base_urls)) == 3
    assert sorted(log.name for log in (tmp_path / "logs").iterdir()) == ["vllm.log", "vllm_1.log", "vllm_2.log"]
    before = await answers(three)
    assert before[0] == before[1] == before[2]
    await three.release_gpus()
    await three.serve(models[1])
    after = await answers(three)
    assert after[0] == after[1] == after[2] != before[0]
    assert [event["how"] for event in list_events(three, "wake")] == ["in_place"] * 3


async def test_a_replica_that_dies_is_started_again_while_the_others_serve(fleet, models):
    two = await fleet(gpus=("0", "1"), restarts=1)
    await two.serve(models[1])
    before, urls = await answers(two), two.base_urls
    stays, dies = [(await look(url))["pid"] for url in urls]
    watch = asyncio.ensure_future(two.watch())
    os.kill(dies, signal.SIGKILL)
    await until(lambda: len(list_events(two, "serve")) == 3)
    assert list_events(two, "replica")[0]["reason"].startswith("vLLM ended while it was serving")
    assert two.base_urls == urls
    assert await answers(two) == before
    assert (await look(urls[0]))["pid"] == stays
    os.kill((await look(urls[1]))["pid"], signal.SIGKILL)
    await until(lambda: len(list_events(two, "replica")) == 2)
    assert [event["again"] for event in two.events if event["event"] == "replica"] == [True, False]
    os.kill(stays, signal.SIGKILL)
    await until(lambda: len(list_events(two, "serve")) == 4)  # the last one, too, is started again
    os.kill((await look(urls[0]))["pid"], signal.SIGKILL)
    with pytest.raises(JobError, match="while it was serving"):
        await asyncio.wait_for(watch, PATIENCE)
    await two.serve(models[1])  # the next iteration has both again
    assert await answers(two) == before


async def test_one_replica_that_does_not_start_stops_all(fleet, models):
    two = await fleet(gpus=("0", "1"), serves=False)
    (Path(models[0]) / "model.safetensors").unlink()
    with pytest.raises(SettingsError, match="it has no weights"):
        await two.serve(models[0])
    assert [server.pid for server in two.servers] == [None, None]
