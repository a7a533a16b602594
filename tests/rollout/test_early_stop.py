"""The completion threshold: what it cuts is stored as cancelled and owed."""

import asyncio

import pytest

from tests.rollout.scripted import ScriptedEnvironment
from webgym_cli.records.failure import FailureKind
from webgym_cli.rollout import memory_limiter as admission
from webgym_cli.store.metrics import Blocklist

CUT = ("rollout.completion_threshold=0.75", "rollout.completion_grace=0")


class Stuck:
    """Holds the episodes of t3 at their third step; every other one waits until they got there."""

    def __init__(self):
        self.waiting, self.all_there, self.let_go = 0, asyncio.Event(), asyncio.Event()

    def hold(self, count):
        async def at_step(environment):
            if environment.task.id == "t3" and len(environment.actions) == 2:
                self.waiting += 1
                if self.waiting == count:
                    self.all_there.set()
                await self.let_go.wait()
            if environment.task.id != "t3":
                await self.all_there.wait()

        return at_step


def cancelled(world):
    return [trajectory for trajectory in world.stored if trajectory.outcome.failure is FailureKind.CANCELLED]


async def test_what_is_cut_is_stored_and_run_by_the_next_command(world):
    world.load(*CUT, "rollout.concurrency=8")
    summary = await world.roll(8, on_step=Stuck().hold(2), steps=4)
    cut = [(trajectory.task.id, len(trajectory.steps), trajectory.outcome.reward) for trajectory in cancelled(world)]
    assert cut == [("t3", 3, None)] * 2  # the third action was cut off
    assert (summary["episodes"], summary["cut"], summary["owed"]) == (6, 2, 2)
    assert summary["failures"] == {"cancelled": 2}
    assert all(environment.closed == 1 for environment in world.pool.environments)
    owed = world.plan(8).owed
    assert [one.episode.id for one in owed] == sorted({trajectory.episode for trajectory in cancelled(world)})
    assert {(one.attempt, one.failures) for one in owed} == {(1, 0)}, "a cut is no failed attempt"
    summary = await world.roll(8)
    assert world.pool.started == ["t3", "t3"]
    assert (summary["episodes"], summary["owed"], summary["cut"]) == (8, 0, 0)
    assert len({trajectory.id for trajectory in world.stored}) == len(world.stored) == 10


@pytest.mark.parametrize("values", [(), ("rollout.completion_threshold=0.75", "rollout.completion_grace=60")])
async def test_by_default_and_within_the_grace_nobody_is_cut(world, values):
    async def lags(environment):
        if environment.task.id == "t3":
            await asyncio.sleep(0.05)

    world.load(*values, "rollout.concurrency=8")
    summary = await asyncio.wait_for(world.roll(8, on_step=lags), 30)
    assert (summary["episodes"], summary["cut"]) == (8, 0)


async def test_what_is_skipped_does_not_hold_the_round(world):
    """Episodes on blocked sites are as done as they will be."""
    world.load(*CUT, "rollout.concurrency=8")
    plan = world.plan(8)
    Blocklist(world.run, 12).add("https://site0.com/", "t", "")
    summary = await asyncio.wait_for(world.roll(plan=plan, on_step=Stuck().hold(2), steps=4), 30)
    assert (summary["episodes"], summary["skipped"], summary["cut"]) == (4, 2, 2)


async def test_an_episode_whose_browser_is_just_closing_is_not_cut(world, monkeypatch):
    closing, ended = asyncio.Event(), []
    close = ScriptedEnvironment.close

    async def slowly(self):
        if self.task.id == "t3":
            ended.append(self)
            if len(ended) == 2:
                closing.set()
            await asyncio.sleep(0.3)
        await close(self)

    async def after_t3(environment):
        if environment.task.id != "t3":
            await closing.wait()

    monkeypatch.setattr(ScriptedEnvironment, "close", slowly)
    world.load("rollout.completion_threshold=0.25", "rollout.completion_grace=0", "rollout.concurrency=8")
    summary = await asyncio.wait_for(world.roll(8, on_step=after_t3), 30)
    assert summary["episodes"] + summary["cut"] == 8
    assert [one.outcome.failure for one in world.of("t3")] == [None, None]
    assert summary["owed"] == summary["cut"] == len(cancelled(world))


async def test_an_episode_that_waits_for_memory_is_owed_without_a_line(world, monkeypatch):
    begun = asyncio.Event()

    async def hold(environment):
        begun.set()
        await asyncio.sleep(0.1)

    monkeypatch.setattr(admission, "free_mb", lambda: 0)
    monkeypatch.setattr(admission, "_LOOK_AGAIN", 0.01)
    world.load("rollout.completion_threshold=0.5", "rollout.completion_grace=0", "rollout.concurrency=4")
    summary = await asyncio.wait_for(world.roll(4, on_reset=hold), 30)
    assert len(world.stored) == summary["episodes"] + summary["cut"] < 4
    assert summary["owed"] == 4 - summary["episodes"]
    assert len(world.plan(4).owed) == summary["owed"]
