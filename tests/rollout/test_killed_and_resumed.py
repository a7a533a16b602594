"""A rollout killed at any moment and taken up again is the uninterrupted one."""

import json
import signal
from pathlib import Path

import pytest

from tests.executable import Command, content, failures, finished, stored, trajectories
from tests.forked import webgym

pytestmark = pytest.mark.browser
EPISODES = 20
ORACLE = ("-c", "demo", "--policy", "oracle", "--episodes", EPISODES, "-s", "rollout.concurrency=4")


@pytest.fixture(scope="module")
def uninterrupted(chromium, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    webgym("rollout", run, *ORACLE, cwd=run.parent)
    return run


def read_plan(run: Path) -> dict:
    again = ("rollout", run, "--episodes", EPISODES, "--dry-run", "--json")
    return json.loads(webgym(*again, cwd=run.parent).stdout)


def nothing_owed(run: Path) -> None:
    plan = read_plan(run)
    assert (plan["owed"], plan["given_up"]) == (0, 0)
    assert not (run / "state.json").exists()


def test_a_rollout_killed_twice_is_the_uninterrupted_one(uninterrupted, tmp_path):
    run = tmp_path / "run"
    before = b""
    arguments: tuple[object, ...] = ("rollout", run, *ORACLE)
    for lines, group in ((5, False), (12, True)):
        command = Command(tmp_path, *arguments)
        command.until(lambda wanted=lines: stored(run).count(b"\n") >= wanted)
        assert command.send(signal.SIGKILL, group=group) == -signal.SIGKILL
        kept = stored(run)
        assert kept.startswith(before) and lines <= kept.count(b"\n") < EPISODES
        before = kept
        arguments = ("resume", run)
    webgym(*arguments, cwd=tmp_path)
    assert stored(run).startswith(before)
    assert sorted(finished(run)) == sorted(finished(uninterrupted))
    assert len(set(finished(run))) == EPISODES
    assert failures(run) == []
    assert content(run) == content(uninterrupted)
    for trajectory in trajectories(run):
        for step in trajectory["steps"]:
            name = step["observation"]["screenshot"]["sha256"]
            assert (run / "screenshots" / name[:2] / f"{name}.png").stat().st_size
    plans = [one / "tasks/train.iteration_0000.jsonl" for one in (run, uninterrupted)]
    assert plans[0].read_bytes() == plans[1].read_bytes()
    nothing_owed(run)
    assert "nothing was interrupted" in webgym("resume", run, cwd=run.parent).stderr


def test_a_rollout_that_is_stopped_keeps_what_was_under_way(uninterrupted, tmp_path):
    run = tmp_path / "run"
    command = Command(tmp_path, "rollout", run, *ORACLE)
    command.until(lambda: stored(run).count(b"\n") >= 8)
    # Ctrl-C in a terminal reaches the whole process group
    assert command.send(signal.SIGINT, group=True) == 130
    assert "Traceback" not in command.err.read_text()
    assert set(failures(run)) == {"cancelled"}
    assert 1 <= len(failures(run)) <= 4
    cancelled = {trajectory["episode"] for trajectory in trajectories(run) if trajectory["outcome"]["failure"]}
    assert cancelled.isdisjoint(finished(run))
    before = stored(run)
    assert read_plan(run)["owed"] == EPISODES - len(finished(run))
    webgym("rollout", run, *ORACLE, cwd=tmp_path)  # the same command again is `resume`
    assert stored(run).startswith(before)
    assert sorted(finished(run)) == sorted(finished(uninterrupted))
    assert content(run) == content(uninterrupted)
    nothing_owed(run)
