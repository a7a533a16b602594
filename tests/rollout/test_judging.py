"""Judging beside the rollout: what counts, what waits, and a judge that is down."""

import asyncio

import pytest

from tests.rewards.cases import DOWN, GARBAGE, judge_settings
from tests.rewards.scripted_judge import ScriptedJudgeServer
from tests.rollout.scripted import ANSWER, Script, ScriptedAgent, ScriptedPool
from webgym_cli.config.cost import CostSettings
from webgym_cli.errors import WebGymError
from webgym_cli.jobs.budget import Budget
from webgym_cli.jobs.workers import MAX_CONSECUTIVE_FAILURES
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Score
from webgym_cli.rewards.judge.judge import Judge
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.queue import EpisodeQueue
from webgym_cli.rollout.runner import LocalRunner
from webgym_cli.store.buffer import read_judgements, scan_stored
from webgym_cli.store.run import now

AGENT = ScriptedAgent((ANSWER,))


def verdict(trajectory, **outcome):
    return Judgement(trajectory=trajectory.id, models={}, settings_digest="0", judged_at=now(), **outcome)


def failed(trajectory, *, unavailable=False):
    failure = {"failure": FailureKind.JUDGE_FAILED, "failure_detail": "no verdict", "unavailable": unavailable}
    return verdict(trajectory, **failure)


async def says_yes(trajectory):
    return verdict(trajectory, success=True)


def verdicts(world):
    return read_judgements(world.run, Split.TRAIN, 0)


async def test_rewards_come_from_the_judge_and_stand_beside_the_trajectories(world):
    async def judge(trajectory):
        return verdict(trajectory, success=trajectory.task.id != "t0")

    summary = await world.roll(8, agent=AGENT, judge=judge)
    assert (summary["episodes"], summary["successes"], summary["judged"]) == (8, 6, 8)
    rewards = {trajectory.task.id: trajectory.outcome.reward for trajectory in world.stored}
    assert rewards == {"t0": 0.0, "t1": 1.0, "t2": 1.0, "t3": 1.0}
    assert {trajectory.outcome.reward for trajectory in scan_stored(world.run, Split.TRAIN, 0)} == {None}
    assert len(world.events_named("judged")) == 8
    assert world.plan(8).owed == () and world.plan(8).unjudged == ()


async def test_no_episode_waits_for_the_judge(world):
    world.load("rollout.concurrency=1", "judge.concurrency=2")
    everything = asyncio.Event()

    async def judge(trajectory):
        await asyncio.wait_for(everything.wait(), 30)
        return verdict(trajectory, success=True)

    async def last(environment):
        if len(world.pool.started) == 6:
            everything.set()

    assert (await world.roll(6, agent=AGENT, judge=judge, on_reset=last))["successes"] == 6


async def test_so_many_are_judged_at_once(world):
    world.load("judge.concurrency=3", "rollout.concurrency=8")
    judging, most = 0, 0

    async def judge(trajectory):
        nonlocal judging, most
        judging += 1
        most = max(most, judging)
        await asyncio.sleep(0.01)
        judging -= 1
        return verdict(trajectory, success=True)

    await world.roll(16, agent=AGENT, judge=judge)
    assert most == 3


async def test_what_the_environment_scores_is_not_judged(world):
    async def judge(trajectory):
        raise AssertionError("it was asked")

    summary = await world.roll(4, judge=judge, score=Score(source="environment", value=1.0))
    assert (summary["successes"], summary["judged"]) == (4, 0)


async def test_a_failed_judgement_counts_neither_way_and_is_judged_again_not_rolled_out(world):
    async def judge(trajectory):
        return failed(trajectory) if trajectory.task.id == "t1" else verdict(trajectory, success=True)

    world.load("rollout.concurrency=1", "judge.concurrency=1")
    summary = await world.roll(4, agent=AGENT, judge=judge)
    assert (summary["episodes"], summary["successes"], summary["failures"]) == (3, 3, {"judge_failed": 1})
    plan = world.plan(4)
    assert (plan.owed, plan.done, len(plan.unjudged)) == ((), 4, 1)
    waiting = [trajectory for trajectory in scan_stored(world.run, Split.TRAIN, 0) if trajectory.id in plan.unjudged]
    summary = await world.roll(4, agent=AGENT, judge=says_yes, unjudged=waiting)
    assert world.pool.started == []
    assert (summary["episodes"], summary["successes"], summary["judged"]) == (4, 4, 1)
    assert len(verdicts(world)[plan.unjudged[0]]) == 2
    assert world.plan(4).unjudged == ()


async def test_an_unreadable_judge_is_never_a_success(world):
    async with ScriptedJudgeServer() as server:
        server.script(*[GARBAGE] * 50)
        judge = Judge(judge_settings(server), world.run)
        with pytest.raises(WebGymError, match="none of the 4 collected episodes could be judged") as caught:
            await world.roll(4, agent=AGENT, judge=judge.judge)
        await judge.close()
    assert "webgym judge" in caught.value.hint
    assert world.outcomes == {("judge_failed", None)}


@pytest.mark.parametrize("episodes", [1, 3, 20])
async def test_a_judge_that_is_down_costs_no_trajectory(world, episodes):
    world.load("judge.concurrency=2", "rollout.concurrency=2")
    async with ScriptedJudgeServer() as server:
        server.script(*[DOWN] * 500)
        judge = Judge(judge_settings(server), world.run)
        with pytest.raises(WebGymError, match="the judge does not answer") as caught:
            await world.roll(episodes, agent=AGENT, judge=judge.judge)
        await judge.close()
        count = len(server.requests)
    assert f"webgym judge {world.run.root}" in caught.value.hint
    assert len(list(scan_stored(world.run, Split.TRAIN, 0))) == episodes
    assert count <= MAX_CONSECUTIVE_FAILURES + 2, "a judge that is down is not asked for ever"
    plan = world.plan(episodes)
    assert (plan.owed, len(plan.unjudged)) == ((), episodes)
    waiting = list(scan_stored(world.run, Split.TRAIN, 0))
    assert (await world.roll(episodes, judge=says_yes, unjudged=waiting))["successes"] == episodes


async def test_a_judge_that_answers_now_and_then_is_not_down(world):
    seen = []

    async def judge(trajectory):
        seen.append(trajectory.id)
        down = len(seen) % MAX_CONSECUTIVE_FAILURES
        return failed(trajectory, unavailable=True) if down else verdict(trajectory, success=True)

    world.load("judge.concurrency=1")
    summary = await world.roll(3 * MAX_CONSECUTIVE_FAILURES, agent=AGENT, judge=judge)
    assert (summary["episodes"], summary["judged"]) == (3, 3 * MAX_CONSECUTIVE_FAILURES)


async def test_a_judgement_that_can_not_be_stored_ends_the_rollout(world):
    async def judge(trajectory):
        world.run.verdicts(Split.TRAIN, 0).parent.mkdir(parents=True, exist_ok=True)
        world.run.verdicts(Split.TRAIN, 0).mkdir(exist_ok=True)
        return verdict(trajectory, success=True)

    with pytest.raises(WebGymError, match="verdicts"):
        await world.roll(4, agent=AGENT, judge=judge)


async def test_without_a_judge_rewards_stay_unknown(world):
    summary = await world.roll(4, agent=AGENT)
    assert (summary["episodes"], summary["success_rate"], summary["collected"]) == (0, None, 4)
    assert len(world.plan(4).unjudged) == 4


class WaitingQueue(EpisodeQueue):
    """Holds its workers until it is ended, as that of an asynchronous loop does while no group may begin."""

    ended = False

    async def take(self):
        while not self.ended and not self._waiting:
            self.changed.clear()
            await self.changed.wait()
        return self.take_now()

    def end(self):
        self.ended = True
        super().end()


@pytest.mark.parametrize("limited", [True, False], ids=["no judge calls are left", "the judge is down"])
async def test_a_loop_whose_episodes_will_not_be_judged_ends(world, limited):
    """It waited for ever for their verdicts."""
    everything = asyncio.Event()

    async def judge(trajectory):
        await everything.wait()
        return verdict(trajectory, success=True, calls=1) if limited else failed(trajectory, unavailable=True)

    def raise_if_down(trajectory, judged):
        if rollout.judge_down:
            raise WebGymError(rollout.judge_down)
        if len(world.stored) == len(plan.owed):
            everything.set()

    world.load("judge.concurrency=1")
    plan, cost = world.plan(MAX_CONSECUTIVE_FAILURES + 2), CostSettings(max_judge_calls=3 if limited else None)
    runner = LocalRunner(world.run, world.settings, AGENT, ScriptedPool(Script()), world.gate)
    parts = (plan, world.run, world.settings, runner, world.events.append, judge, WaitingQueue(plan.owed))
    rollout = RolloutEngine(*parts, on_outcome=raise_if_down, budget=Budget(cost, "RUN"))
    message = "3 of 3 judge calls are made" if limited else "no verdict"
    with pytest.raises(WebGymError, match=message):
        await asyncio.wait_for(rollout.run_all(), 20)
    assert len(world.stored) == len(plan.owed)
