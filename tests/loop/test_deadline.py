"""A loop in a batch job ends before the job does, and goes on in the next one."""

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests import forked
from tests.loop.test_loop import SETTINGS, Stages
from tests.records.builders import new_run
from webgym_cli.config.load import load
from webgym_cli.errors import OutOfTimeError, Terminated, UsageError
from webgym_cli.jobs.signals import run_async
from webgym_cli.loop.async_loop import AsyncLoop
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.loop import Loop
from webgym_cli.loop.loop_plan import END_VARIABLE, Deadline, find_deadline, measure_last, plan_loop
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir, create_or_open

EXTENDING = Path(__file__).parents[1] / "extending"


class Clock:
    """A clock that each stage moves on by `seconds`, which the stage records as its own."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        return self.now


class Timed(Stages):
    """Stages that take the time of their clock."""

    clock: Clock

    def _fails(self, stage):
        super()._fails(stage)
        self.clock.now += self.clock.seconds
        name = "rollout" if stage.startswith("train-") else stage
        append_event(self.run, {"event": name, "seconds": self.clock.seconds})


@pytest.fixture
def looped(tmp_path, told_stages):
    run = RunDir(tmp_path / "run")
    settings = load(["demo"], SETTINGS)
    create_or_open(run, settings)

    async def execute(seconds_left):
        stages = Timed(run, settings)
        stages.clock = Clock(10.0)
        loop = Loop(plan_loop(run, settings, iterations=3, eval_every=0), stages)
        loop.deadline = seconds_left and Deadline(run, seconds_left, stages.clock)
        try:
            await loop.execute()
        except OutOfTimeError as error:
            assert error.exit_code == 85 and "webgym resume" in error.hint
        return [(call[0], call[1]) for call in stages.calls]

    return execute


async def test_no_stage_starts_that_can_not_end_and_the_next_job_goes_on(looped, tmp_path):
    whole = [(stage, version) for version in range(3) for stage in ("train", "prepare", "train")]
    assert (await looped(55.0)) == whole[:4]
    second = await looped(35.0)
    assert second[0] == ("train", 1) and len(second) == 3  # the rollout that is done is asked again, then the update
    assert (await looped(None))[-1] == whole[-1]


@pytest.mark.parametrize(
    ("wait", "calls"), [(0.0, ["prepare", "train", "prepare", "train"]), (20.0, ["prepare", "train", "prepare"])]
)
async def test_an_asynchronous_loop_starts_no_update_that_can_not_end(tmp_path, monkeypatch, wait, calls):
    run, settings = RunDir(tmp_path / "run"), load(["demo"], [*SETTINGS, "loop.mode=async"])
    create_or_open(run, settings)
    clock, called = Clock(10.0), []

    async def prepare(loop, parent):
        called.append("prepare")
        clock.now += wait if parent else 0.0

    async def train(loop):
        called.append("train")
        clock.now += clock.seconds
        append_event(run, {"event": "train", "seconds": clock.seconds})

    async def nothing(loop, group=None):
        pass

    for name, stage in {"_prepare": prepare, "_train": train, "_start_evaluation": nothing}.items():
        monkeypatch.setattr(AsyncLoop, name, stage)
    plan = plan_loop(run, settings, iterations=5, eval_every=0)
    with pytest.raises(OutOfTimeError, match="the next update takes about"):
        await AsyncLoop(plan, StageContext(run, settings, tmp_path, print), Deadline(run, 25.0, clock))._update(None)
    assert called == calls


async def test_a_stage_that_is_longer_than_a_job_starts_first_in_it(looped, tmp_path):
    await looped(29.0)
    append_event(RunDir(tmp_path / "run"), {"event": "rollout", "seconds": 9999.0})
    assert (await looped(30.0))[0] == ("train", 1)


def test_the_longer_one_of_the_last_two_durations_of_each_part_counts(tmp_path):
    run = new_run(tmp_path / "run", load(["demo"]))
    for seconds in (5.0, 7.0):
        append_event(run, {"event": "prepare", "seconds": seconds})
    append_event(run, {"event": "train", "seconds": 20.0})
    append_event(run, {"event": "train", "seconds": None})
    assert (measure_last(run, "update"), measure_last(run, "rollout")) == (27.0, 0.0)
    for seconds, collected in ((90.0, 8), (60.0, 8), (50.0, 8), (0.1, 0), (0.2, 0)):
        append_event(run, {"event": "rollout", "seconds": seconds, "collected": collected})
    assert measure_last(run, "rollout") == 60.0  # the last two commands found the rollout complete


@pytest.mark.parametrize(("given", "seconds"), [("3m", 180), ("90s", 90), ("90", 90), ("1.5h", 5400)])
def test_the_deadline_is_that_long_before_the_end_of_the_job(tmp_path, given, seconds):
    assert find_deadline(RunDir(tmp_path), given, {END_VARIABLE: "1800000000"}).at == 1800000000 - seconds
    assert find_deadline(RunDir(tmp_path), None, {}) is None


@pytest.mark.parametrize(
    ("given", "end"),
    [("soon", "9"), ("-3m", "9"), *(("3m", end) for end in ("", "18:00", None, "1800000000000", "9" * 5000))],
)
def test_a_time_that_can_not_be_read_is_refused(tmp_path, given, end):
    with pytest.raises(UsageError) as caught:
        find_deadline(RunDir(tmp_path), given, {} if end is None else {END_VARIABLE: end})
    assert "--stop-before" in str(caught.value) and caught.value.hint


def test_a_stage_that_runs_is_stopped_with_its_clean_up(tmp_path):
    cleaned = []

    async def stage():
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    with pytest.raises(OutOfTimeError), Deadline(RunDir(tmp_path), time.time() + 0.2).enforced():
        run_async(stage())
    assert cleaned

    async def terminated():
        os.kill(os.getpid(), 15)
        await asyncio.sleep(60)

    with pytest.raises(Terminated), Deadline(RunDir(tmp_path), time.time() + 3600).enforced():
        run_async(terminated())


def test_a_requeued_job_goes_on_with_the_loop_of_the_one_before(tmp_path, tiny_model_dir):
    for file in EXTENDING.glob("dial_*.py"):
        shutil.copy(file, tmp_path)
    shutil.copy(EXTENDING / "train_plugin.py", tmp_path)
    given = [
        *('plugins=["dial_plugin.py", "train_plugin.py"]', "tasks.train=dial:all", "train.algorithm=dial_trainer"),
        *(f"policy_config.base_model={tiny_model_dir}", "algorithm_config.bf16=false", "loop.eval_every=0"),
        *("loop.demonstration_iterations=2", "rollout.episodes=40", "rollout.concurrency=1"),
    ]
    begun = ("loop", "run", "--iterations", "2", "--phase", "rollout", "--stop-before", "1s")
    words = [word for one in given for word in ("-s", one)]
    env = {"DIAL_PAUSE": "0.5", END_VARIABLE: str(int(time.time()) + 8)}
    forked.webgym(*begun, *words, cwd=tmp_path, **env, code=85)
    before = stored(tmp_path)
    assert len(before) < 40
    later = {END_VARIABLE: str(int(time.time()) + 3600)}
    forked.webgym(*begun, *words, cwd=tmp_path, **later)
    after = stored(tmp_path)
    assert len(after) == len(set(after)) == 40 and set(before) <= set(after)


def stored(folder: Path) -> list[str]:
    files = folder.glob("run/train_trajectories/*/*.jsonl")
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [record["episode"] for record in records if record["outcome"]["failure"] is None]  # one was interrupted


def test_a_curriculum_ends_before_its_job_does(tmp_path, tiny_model_dir):
    given = ["tasks.train=miniwob:click-button", "curriculum.generate=false", "curriculum.score=environment"]
    given += ["curriculum.phases=1", f"policy_config.base_model={tiny_model_dir}", "train.algorithm=grpo"]
    words = [word for one in given for word in ("-s", one)]
    late = {END_VARIABLE: "1"}
    forked.webgym("curriculum", "run", *words, "--stop-before", "1s", cwd=tmp_path, **late, code=85)
