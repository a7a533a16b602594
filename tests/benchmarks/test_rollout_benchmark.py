import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace

import pytest

from benchmarks import rollout
from benchmarks.engine import Job, PacedPool, ScriptedAgent, planned
from benchmarks.episodes import NETWORK, POLICY, Distributions, Script
from benchmarks.harness import ROOT, Row, Series, table
from benchmarks.schedulers import NAIVE, OURS, REFILL, StepBarrier, arrange
from tests.records.builders import new_run
from tests.rollout.scripted import Script as Environment
from tests.rollout.scripted import ScriptedPool, failing
from webgym_cli.config.load import load
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.task import Split
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.runner import LocalRunner
from webgym_cli.store.buffer import scan_stored

STEPS = (3, 1, 2, 5, 1, 1, 4, 2, 1)
"""How long the episodes are."""


class World:
    """Scripted environments under a scheduler with `size` slots; notes whose browser works in which turn."""

    def __init__(self, folder, scheduler, size=3):
        self.turns = defaultdict(list)
        self.settings = load(overrides=[f"rollout.concurrency={size}", "rollout.max_attempts=1"])
        self.run = new_run(folder / scheduler, self.settings)
        self.scripts = [Script(n, (0.0,) * steps, (0.0,) * steps) for n, steps in enumerate(STEPS)]
        self.plan = planned(Job(tuple(self.scripts), size))
        self.queue, self.barrier = arrange(scheduler, self.plan.owed, size)

    async def note(self, environment):
        self.turns[self.barrier.turns if self.barrier else 0].append(environment.seed)

    async def roll(self, **hooks):
        inner = ScriptedPool(Environment(steps=99, **{"on_reset": self.note, "on_step": self.note, **hooks}))
        pool = PacedPool(inner, self.scripts, self.barrier)
        actor = ScriptedAgent((160, 210), InteractionMode.COORDINATES)
        runner = LocalRunner(self.run, self.settings, actor, pool)
        rollout = RolloutEngine(self.plan, self.run, self.settings, runner, lambda _: None, queue=self.queue)
        await rollout.execute()
        return {one.seed: len(one.steps) for one in scan_stored(self.run, Split.TRAIN, 0)}


@pytest.mark.parametrize("scheduler", [NAIVE, REFILL, OURS])
async def test_every_scheduler_runs_the_same_episodes_to_their_end(tmp_path, scheduler):
    assert await World(tmp_path, scheduler).roll() == dict(enumerate(STEPS))


async def test_the_naive_one_begins_a_batch_when_the_last_one_has_ended(tmp_path):
    world = World(tmp_path, NAIVE)
    await world.roll()
    # Of each batch: the resets, then a round for each further step of its longest episode.
    assert [sorted(seeds) for seeds in world.turns.values()] == [
        *([0, 1, 2], [0, 2], [0]),
        *([3, 4, 5], [3], [3], [3], [3]),
        *([6, 7, 8], [6, 7], [6], [6]),
    ]


async def test_refilling_keeps_all_places_busy_until_nothing_is_left(tmp_path):
    world = World(tmp_path, REFILL)
    await world.roll()
    busy = [[0, 1, 2], [0, 2, 3], [0, 3, 4], [3, 5, 6], [3, 6, 7], [3, 6, 7], [6, 8]]
    assert [sorted(seeds) for seeds in world.turns.values()] == busy


async def test_a_barrier_opens_for_the_others_when_one_leaves():
    barrier = StepBarrier()
    barrier.join(3)
    waiting = [asyncio.create_task(barrier.arrive()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    barrier.leave()
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert barrier.members == 2


@pytest.mark.parametrize("scheduler", [NAIVE, REFILL])
async def test_a_failed_episode_holds_up_nobody(tmp_path, scheduler):
    world = World(tmp_path, scheduler)
    await world.roll(on_step=failing(times=2))
    failed = {one.seed for one in scan_stored(world.run, Split.TRAIN, 0) if one.outcome.failure}
    assert failed == {0, 2}  # the first two that step: all are of one task
    assert {one.seed for one in scan_stored(world.run, Split.TRAIN, 0)} == set(range(len(STEPS)))


def test_draws_follow_from_the_seed_alone():
    drawn = Distributions(POLICY, NETWORK)
    few, many = drawn.scripts(3, seed=5), drawn.scripts(8, seed=5)
    assert many[:3] == few
    assert drawn.scripts(3, seed=6) != few
    assert all(len(one.latencies) == len(one.waits) for one in many)


def test_draws_have_the_median_that_they_say():
    latencies = [latency for one in Distributions().scripts(2000, seed=1) for latency in one.latencies]
    lengths = sorted(len(one.latencies) for one in Distributions().scripts(2000, seed=1))
    assert sorted(latencies)[len(latencies) // 2] == pytest.approx(0.3, rel=0.05)
    assert lengths[1000] == 6


def test_a_ratio_above_1_means_that_ours_is_better():
    slow = Row("case", "makespan_s", Series((2.0, 4.0, 3.0)), "naive", Series((8.0, 4.0, 9.0)), target=3.0)
    record = slow.to_json("rollout", {"cores": 2})
    assert (record["value"], record["baseline_value"]) == (3.0, 8.0)
    assert (record["ratio"], record["ratio_spread"]) == (3.0, [1.0, 4.0])  # of 8/2, 4/4 and 9/3
    assert record["met"] is True
    speed = Row("case", "steps_per_s", Series((30.0,)), "bare", Series((40.0,)), higher_is_better=True, target=0.9)
    assert speed.to_json("rollout", {})["ratio"] == 0.75
    assert speed.met is False
    assert Row("case", "pss_mb", Series((599.0,)), target=600.0).met is True
    assert "MISSED" in table([speed])


NETWORK_DRAWN = "lognormal(median 0.12, sigma 0.9)"


def test_a_local_case_draws_no_network(monkeypatch):
    monkeypatch.setattr(rollout, "program", lambda *_: {"makespan_s": 1.0, "time_to_80_s": 1.0, "steps": 3})
    drawn = {row.case: row.inputs["distributions"]["network_s"] for row in rollout.schedulers(rollout.QUICK)}
    assert drawn == {"local N=4": "none", "network N=4": NETWORK_DRAWN}


def test_the_module_is_a_program():
    command = [sys.executable, "-m", "benchmarks.rollout", "--repeats", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a whole number from 1 on, not '0'" in done.stderr


@pytest.mark.browser
def test_quick_runs_to_its_end_and_prints_rows(capsys):
    _, network = rollout.QUICK.cases  # a local one does the same with other numbers
    assert rollout.main(["--quick"], replace(rollout.QUICK, cases=(network,))) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["benchmark"] for row in rows} == {"rollout"}
    for row in rows:
        assert row["value"] > 0 and row["machine"]["cores"] >= 1
        assert ("baseline" in row) == ("ratio" in row)
    by_metric = {(row["case"], row["metric"]): row for row in rows}
    assert by_metric["network N=4", "makespan_s"]["inputs"]["distributions"]["network_s"] == NETWORK_DRAWN
    solved = {row["case"]: row["value"] for row in rows if row["metric"] == "solved_share"}
    assert solved == {"4 MiniWoB pages, coordinates": 1.0, "4 MiniWoB pages, set_of_marks": 1.0}
