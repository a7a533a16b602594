"""The whole of `execute` with a scripted trainer in the place of LLaMA-Factory: each behaviour in a second."""

import asyncio
import os
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from tests.train.fake_checkpoints import published
from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.errors import JobError, StoreError
from webgym_cli.store import checkpoints
from webgym_cli.store.run import new_attempt
from webgym_cli.train.execute import execute
from webgym_cli.train.plan import plan_training

NAME = "model_20260109_000000"
SLEEP = f"300.{os.getpid()}"
"""Seconds, in a way that only this test session sleeps."""
TRAINER = f"""#!{sys.executable}
import json, os, subprocess, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from tests.train.fake_checkpoints import checkpoint
import yaml
config = yaml.safe_load(open(sys.argv[2]))
out = Path(config["output_dir"])
behave = os.environ.get("BEHAVE", "")
resumed = config.get("resume_from_checkpoint", "")
start = int(resumed.rpartition("-")[2]) if "checkpoint-" in resumed else 0
for step in range(start + 1, 5):
    facts = dict(current_steps=step, total_steps=4, loss=5.0 - step, lr=config["learning_rate"])
    with (out / "trainer_log.jsonl").open("a") as log:
        log.write(json.dumps(facts) + "\\n")
    if behave == f"save at {{step}}":
        checkpoint(out / f"checkpoint-{{step}}", step=step)
        sys.exit("ValueError: bad luck")
    if behave == "early" and step == 2:
        sys.exit(0)
    if behave == "hang":
        subprocess.Popen(["sleep", {SLEEP!r}], start_new_session=True)
        time.sleep(300)
checkpoint(out / "checkpoint-4")
"""


@pytest.fixture
def ready(run, role, tmp_path, monkeypatch):
    (role / "bin/llamafactory-cli").write_text(TRAINER)
    events = []

    async def go(behave="", name=NAME, digest="d0", again=False, sink=events.append, train=None, **algorithm):
        monkeypatch.setenv("BEHAVE", behave)
        settings = settings_for(role=role, train=train, **algorithm)
        if not again:
            prepare(run, settings, rows(tmp_path / "images", 4), name, digest)
        return await execute(plan_training(run, settings), run, settings, new_attempt(run), sink)

    go.events = events
    return go


def named(events, name):
    return [event for event in events if event["event"] == name]


async def test_trains_and_publishes(ready, run):
    made = await ready()
    assert checkpoints.current(run) == made
    assert [event["done"] for event in named(ready.events, "train")] == [1, 2, 3, 4]
    assert [event["event"] for event in ready.events if event["event"] != "train"] == ["train_start", "train_done"]
    assert made.loss == 2.5
    assert run.model(settings_for()).resolve() == (run.checkpoints / NAME).resolve()
    assert (run.logs / "latest/train.log").is_file()


async def test_a_failure_keeps_what_was_saved_and_goes_on_from_there(ready, run):
    with pytest.raises(JobError, match=r"exit status 1.*bad luck") as caught:
        await ready("save at 2")
    assert caught.value.returncode == 1
    assert checkpoints.current(run) is None
    made = await ready(again=True)
    assert [event["done"] for event in named(ready.events, "train")] == [1, 2, 3, 4]
    assert "goes on after step 2" in named(ready.events, "train_note")[0]["message"]
    assert made.loss == 2.5


async def test_a_dataset_that_changed_discards_the_interrupted_training(ready, run):
    with pytest.raises(JobError):
        await ready("save at 2")
    await ready(digest="d1", name="model_20260110_000000")
    assert [event["done"] for event in named(ready.events, "train")][2:] == [1, 2, 3, 4]
    assert any("removed" in event["message"] for event in named(ready.events, "train_note"))
    assert [path.name for path in run.checkpoints.iterdir()] == ["model_20260110_000000"]


async def test_exit_0_before_the_last_step_is_a_failure(ready, run):
    with pytest.raises(JobError, match="after 2 of 4 steps"):
        await ready("early")
    assert checkpoints.current(run) is None


async def test_the_time_limit(ready):
    began = time.monotonic()
    with pytest.raises(JobError, match="time limit"):
        await ready("hang", train={"time_limit_minutes": 1 / 60})
    assert time.monotonic() - began < 15
    assert not sleepers()


def sleepers():
    return [found for found in psutil.process_iter(["cmdline"]) if found.info["cmdline"] == ["sleep", SLEEP]]


async def test_cancelling_ends_the_whole_tree(ready, run):
    def sink(event):
        ready.events.append(event)

    task = asyncio.ensure_future(ready("hang", sink=sink))
    while not (named(ready.events, "train") and sleepers()):  # noqa: ASYNC110 - processes set no events
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not sleepers()
    assert (run.checkpoints / f"{NAME}.partial").is_dir()


async def test_the_parents_moments_are_carried(ready, run, role):
    published(run, 1)
    (role / "bin/python").write_text('#!/bin/sh\nmkdir "$3"\n')
    made = await ready()
    assert (made.version, made.parent) == (2, "model_20260101_000000")
    assert named(ready.events, "train_start")[0]["mode"] == "carried"
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["model_20260101_000000", NAME]


async def test_states_that_can_not_be_carried_are_told(ready, run, role):
    published(run, 1)
    (role / "bin/python").write_text("#!/bin/sh\necho 'webgym: torn file' >&2\nexit 3\n")
    await ready()
    assert named(ready.events, "train_start")[0]["mode"] == "fresh"
    assert any("torn file" in event["message"] for event in named(ready.events, "train_note"))


async def test_a_builder_that_fails_stops_the_training(ready, run, role):
    published(run, 1)
    (role / "bin/python").write_text("#!/bin/sh\necho 'MemoryError' >&2\nexit 1\n")
    with pytest.raises(JobError, match="MemoryError"):
        await ready()


async def test_what_is_run_is_the_yaml_with_the_overrides(ready, run):
    with pytest.raises(JobError):
        await ready("save at 2")
    launched = yaml.safe_load((run.checkpoints / f"{NAME}.partial/launch.yaml").read_text())
    prepared = yaml.safe_load((run.dataset / "train_config.yaml").read_text())
    assert {key for key in launched if launched[key] != prepared.get(key)} == {"output_dir"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_can_not_be_written(ready, run):
    run.checkpoints.mkdir()
    run.checkpoints.chmod(0o500)
    with pytest.raises(StoreError):
        await ready()


async def test_a_file_in_the_place_of_the_folder(ready, run):
    run.checkpoints.write_text("")
    with pytest.raises(StoreError, match="checkpoints"):
        await ready()
