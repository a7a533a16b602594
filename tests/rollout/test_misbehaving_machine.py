"""A rollout on a machine that misbehaves: one clear line, the published exit code, and nothing lost."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.executable import Command, failures, file_system, fill, finished, stored, trajectories
from tests.forked import begin, read_refusal, refused, webgym

pytestmark = pytest.mark.browser
DEMO = ("-c", "demo", "-s", "rollout.concurrency=4")
ORACLE = (*DEMO, "--policy", "oracle", "--episodes")


@pytest.fixture
def run(tmp_path) -> Path:
    return tmp_path / "run"


def test_a_browser_that_is_killed_is_replaced(chromium, tmp_path, run):
    # so many at once that some are on a page, and not just between two pages, whenever the browser dies
    command = Command(tmp_path, "rollout", run, *ORACLE, 18, "-s", "rollout.concurrency=12")
    command.until(lambda: stored(run).count(b"\n") >= 4 and command.browsers())
    for browser in command.browsers():
        browser.kill()
    assert command.finish() == 0
    assert failures(run)
    assert set(failures(run)) == {"browser_crashed"}
    assert len(finished(run)) == len(set(finished(run))) == 18
    retried = {trajectory["episode"] for trajectory in trajectories(run) if trajectory["outcome"]["failure"]}
    assert retried <= set(finished(run))


@pytest.fixture
def small_disk(tmp_path):
    with file_system(tmp_path / "disk", "2m") as folder:
        yield folder


def test_a_full_disk(chromium, tmp_path, small_disk):
    run = small_disk / "run"
    pages = "tasks.train=miniwob:click-dialog,click-tab,focus-text-2"
    command = Command(tmp_path, "rollout", run, *ORACLE, 16, "-s", pages)
    command.until(lambda: stored(run).count(b"\n") >= 5)
    filler = fill(small_disk)
    before = stored(run)
    assert command.finish() == 1
    message, hint = read_refusal(command.err.read_text())
    assert str(run) in message and "No space left on device" in message
    assert hint.startswith("free disk space")
    assert stored(run).startswith(before)
    assert all(trajectory["id"] for trajectory in trajectories(run)), "each line is whole"
    kept = stored(run)
    filler.unlink()
    assert "damaged" not in webgym("resume", run, cwd=tmp_path).stderr
    assert stored(run).startswith(kept)
    assert len(finished(run)) == len(set(finished(run))) == 16


def test_one_writer_a_run(chromium, tmp_path, run):
    first = Command(tmp_path, "rollout", run, *ORACLE, 6)
    first.until(lambda: stored(run).count(b"\n") >= 2)
    os.kill(first.process.pid, signal.SIGSTOP)  # on a busy machine it would end before the others have begun
    message, _ = refused("rollout", run, *ORACLE, 6, cwd=tmp_path, code=75)
    assert f"`webgym rollout {run}` (process {first.process.pid} on " in message
    webgym("inspect-buffer", run, cwd=tmp_path)
    webgym("rollout", run, *ORACLE, 6, "--dry-run", cwd=tmp_path)
    os.kill(first.process.pid, signal.SIGCONT)
    assert first.finish() == 0
    assert len(finished(run)) == 6


def test_a_reader_that_has_seen_enough_leaves_a_run_to_resume(chromium, tmp_path, run):
    reading, writing = os.pipe()
    streams = {1: writing, 2: str(tmp_path / "err")}
    writer = begin("rollout", run, *ORACLE, 16, "--json", cwd=tmp_path, streams=streams)
    os.close(writing)
    with os.fdopen(reading) as reader:
        assert json.loads(reader.readline())["event"] == "plan"
    writer.join(60)
    text = (tmp_path / "err").read_text()
    assert "Traceback" not in text and "BrokenPipe" not in text
    assert set(failures(run)) <= {"cancelled"}
    assert len(finished(run)) < 16
    webgym("resume", run, cwd=tmp_path)
    assert len(finished(run)) == len(set(finished(run))) == 16
