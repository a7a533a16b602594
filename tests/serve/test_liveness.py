"""A server that is up and answers no request, against a process that speaks vLLM's HTTP."""

import asyncio
import os
import signal
import subprocess
from types import SimpleNamespace

import psutil
import pytest

from tests.serve.fakes import fake_python, look, until, weights
from webgym_cli.config.load import load
from webgym_cli.errors import JobError
from webgym_cli.jobs.guard import descendants
from webgym_cli.serve import execute, liveness, ports
from webgym_cli.serve.client import EngineLoad
from webgym_cli.serve.liveness import Liveness
from webgym_cli.serve.plan import plan_servers

PATIENCE = 60


@pytest.fixture
def fleet(tmp_path, monkeypatch, open_fleet):
    """Returns how to make servers that count as hanging after a second."""
    monkeypatch.setattr(execute, "SILENCE", 0.3)
    monkeypatch.setattr(execute, "STOP_GRACE", 0.5)
    monkeypatch.setattr(ports, "_CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(liveness, "_MAX_TICK", 0.1)
    model, python = weights(tmp_path / "model", b"one"), fake_python(tmp_path)

    async def make(*overrides, restarts=2):
        settings = load(overrides=["serve.port=0", "serve.stall_timeout=1", *overrides])
        one = open_fleet(plan_servers(settings, model, python, "cpu"), restarts=restarts)
        await one.serve(model)
        return one

    return make


def engine(fleet, number=0):
    """Return the process of a server that speaks HTTP: the youngest below its guard."""
    return descendants(fleet.servers[number].pid)[-1]


def named(fleet, name):
    return [event for event in fleet.events if event["event"] == name and "bar" not in event]


async def stop_process(one, behave):
    os.kill(engine(one), signal.SIGSTOP)


async def hang(one, behave):
    behave(answer="hangs")


async def kill(one, behave):
    os.kill(engine(one), signal.SIGKILL)


@pytest.mark.parametrize(("break_server", "replicas"), [(stop_process, 1), (hang, 2), (kill, 2)])
async def test_a_server_that_is_up_and_answers_nothing_is_started_again(fleet, behave, break_server, replicas):
    one = await fleet(f"serve.replicas={replicas}")
    urls, pids = one.base_urls, {engine(one, number) for number in range(replicas)}
    watch = asyncio.ensure_future(one.watch())
    await asyncio.sleep(0.5)
    await break_server(one, behave)
    await until(lambda: named(one, "replica"))
    behave()

    def all_are_back():  # both servers may have hanged
        result = len(named(one, "serve")) - replicas == len(named(one, "replica"))
        return result and all(server.is_serving for server in one.servers)

    await until(all_are_back)
    assert one.base_urls == urls and not watch.done()
    watch.cancel()
    assert named(one, "replica")[0]["again"]
    assert "/vllm" in named(one, "replica")[0]["reason"] and ".log" in named(one, "replica")[0]["reason"]
    assert named(one, "silent") or break_server is kill
    now = {engine(one, number) for number in range(replicas)}
    assert {(await look(url))["pid"] for url in urls} == now
    assert pids - now and not any(psutil.pid_exists(pid) for pid in pids - now)


async def test_after_its_restarts_the_last_one_ends_the_command_with_its_log(fleet, behave):
    one = await fleet(restarts=1)
    behave(answer="hangs")
    with pytest.raises(JobError, match=r"answered no request.*stall_timeout.*vllm\.log") as caught:
        async with asyncio.timeout(PATIENCE), one.watched():
            await until(lambda: named(one, "replica"))
            behave()  # the new one answers the known prompts
            await until(lambda: len(named(one, "serve")) == 2)
            behave(answer="hangs")
            await asyncio.sleep(PATIENCE)
    assert "vllm.log" in caught.value.hint
    assert one.servers[0].pid is None


async def test_a_block_that_ends_or_fails_ends_the_watch(fleet):
    one = await fleet()
    async with one.watched():
        pass
    with pytest.raises(JobError, match="the block"):
        async with one.watched():
            raise JobError("the block")
    assert one.servers[0].is_serving


async def test_a_server_that_hangs_is_restarted_before_new_weights_are_loaded(fleet, behave, tmp_path):
    one = await fleet("serve.startup_timeout=100")
    os.kill(engine(one), signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE / 2):
        await one.serve(weights(tmp_path / "next", b"two"))
    assert [event["how"] for event in named(one, "swap")] == ["restart"]
    assert "answered no request" in named(one, "swap_failed")[0]["reason"]


class ScriptedClient:
    """Answers probes and reads loads from a list; the last one again and again."""

    def __init__(self, *looks):
        self.looks = list(looks)

    async def __aenter__(self):
        self.now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return self

    async def __aexit__(self, *_):
        pass

    async def answers(self, deadline):
        return self.now[0]

    async def read_load(self):
        return {name: EngineLoad(requests, {"tokens": tokens}) for name, (requests, tokens) in self.now[1].items()}


LOOKS = {
    "answers": ([(True, {})], True),
    "answers, no counters move": ([(True, {"0": (0, 5)})], True),
    "does not answer": ([(False, {})], False),
    "is idle and does not answer": ([(False, {"0": (0, 5)})], False),
    "is saturated": ([(False, {"0": (9, number)}) for number in range(99)], True),
    "stands still": ([(False, {"0": (9, 5)})], False),
    "answers beside a stalled engine": ([(True, {"0": (1, number), "1": (3, 5)}) for number in range(99)], False),
    "answers beside an idle engine": ([(True, {"0": (1, number), "1": (0, 5)}) for number in range(99)], True),
}


@pytest.mark.parametrize(("looks", "alive"), LOOKS.values(), ids=LOOKS)
async def test_signs_of_life(monkeypatch, looks, alive):
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0)
    client = ScriptedClient(*looks)
    now = [0.0]
    # a clock of its own: on a busy machine a sleep takes longer than the silence that is looked for
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: now[0]))
    one, silences = Liveness(lambda: client, None), []
    for _ in range(12):
        silences.append(one.observe())
        await asyncio.sleep(0.01)
        now[0] += 0.01
    assert (max(silences[4:]) < 0.08) is alive
    await one.close()


async def test_a_pause_of_this_process_is_no_silence_of_the_server(monkeypatch):
    one = Liveness(lambda: ScriptedClient((False, {})), None)
    monkeypatch.setattr(liveness.time, "monotonic", lambda: one._observed + 1000)
    assert one.observe() == liveness._MAX_TICK
    await one.close()


@pytest.mark.parametrize(("code", "factor"), [("while True: pass", 5), ("import time; time.sleep(60)", 1)])
async def test_a_server_that_computes_on_a_cpu_gets_longer(monkeypatch, code, factor):
    # below a process of its own, beside which other tests have none, and measured from when Python has started
    guard = psutil.Popen(["sh", "-c", 'python3 -S -c "$0"; :', f"print(flush=True)\n{code}"], stdout=subprocess.PIPE)
    guard.stdout.readline()
    (process,) = guard.children()
    try:
        one, begun = Liveness(lambda: ScriptedClient((False, {})), guard.pid), sum(process.cpu_times()[:2])
        # on a busy machine it gets little of the second
        await until(lambda: factor == 1 or sum(process.cpu_times()[:2]) >= begun + 0.2)
        monkeypatch.setattr(liveness.time, "monotonic", lambda: one._measured[0] + 1)
        await one._look_for_signs()
        assert one.limit(60) == 60 * factor
    finally:
        process.kill()
        guard.wait()
