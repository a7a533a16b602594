"""`webgym import` as people meet it."""

import fcntl
import json
import os
import signal
from functools import partial

import pytest

from tests import forked
from tests.imports.foreign import PAGE, REFUTED, webgym_episode, webgym_file, webgym_pictures, webrl_episode
from tests.records.builders import new_run
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.run import RunDir
from webgym_cli.store.status import lock_run, read_running_command
from webgym_cli.util.files import write_lines


@pytest.fixture
def webgym(tmp_path):
    return partial(forked.webgym_values, cwd=tmp_path)


@pytest.fixture
def logs(tmp_path):
    webgym_pictures(tmp_path / "logs", "one", "two", steps=6)
    turns = webgym_episode("one")
    webgym_file(tmp_path / "logs", [turns[:1] * 5 + turns[1:], webgym_episode("two", REFUTED)])
    return tmp_path / "logs"


def test_an_import_is_there_for_the_commands_that_follow(webgym, logs, tmp_path):
    code, events, result = webgym("import", "webgym", logs, "run")
    assert (code, events[-1]["event"], events[-1]["imported"]) == (0, "import", 2)
    assert "imported 2: 1 solved, 8 steps" in result
    assert result.endswith("next: webgym inspect-buffer run\n")
    code, (overview,), _ = webgym("inspect-buffer", "run", "--json")
    assert (code, overview["trajectories"], overview["success_rate"]) == (0, 2, 0.5)
    code, (plan,), _ = webgym("prepare", "run", "--dry-run")
    assert (code, plan["trajectories"], plan["dropped_trajectories"]["unsuccessful"]) == (0, 2, 1)
    assert (plan["dropped_steps"]["same_screenshot"], plan["eligible_steps"]) == (5, 1)
    code, _, result = webgym("import", "auto", logs, "run")
    assert (code, "2 already_imported" in result) == (0, True)
    assert read_running_command(RunDir(tmp_path / "run")) is None


def test_an_imported_reward_is_a_success_from_the_runs_threshold_on(webgym, tmp_path):
    turns = [{"role": "user", "content": "How much?"}, {"role": "assistant", "content": "39"}]
    lines = ({"messages": turns, "reward": reward} for reward in (0.4, 0.5))
    write_lines(tmp_path / "given.jsonl", lines)
    code, events, _ = webgym("import", "messages", "given.jsonl", "run", "-s", "rollout.success_threshold=0.5")
    assert (code, events[-1]["imported"], events[-1]["solved"]) == (0, 2, 1)


def test_what_is_left_out_is_told_with_an_example(webgym, logs):
    (logs / "images" / "two" / "step_001.png").unlink()
    code, events, result = webgym("import", "webgym", logs, "run")
    assert (code, events[-1]["skipped"]) == (0, {"screenshot_missing": 1})
    assert f"  screenshot_missing: {logs}/train_trajectories/train_trajectories.pt.iteration3, trajectory 1: " in result
    assert "step_001.png: not there" in result


def test_a_locked_run_and_a_rollouts_iteration_are_left_alone(webgym, logs, tmp_path):
    run = new_run(tmp_path / "run")
    with lock_run(run, "rollout runs/a"):
        assert webgym("import", "webgym", logs, "run")[0] == 75
    write_lines(run.plan(Split.TRAIN, 0), [])
    code, _, result = webgym("import", "webgym", logs, "run")
    assert (code, "next: --iteration 1" in result) == (2, True)
    assert webgym("import", "webgym", logs, "run", "--iteration", "1")[0] == 0
    assert len(list(scan_stored(run, Split.TRAIN, 1))) == 2


def test_the_green_frames_are_told_of_and_stay_out_of_training(webgym, tmp_path):
    webrl_episode(tmp_path / "r", "12", ['do(action="Click", element="3")'])
    code, _, result = webgym("import", "webrl", "r", "run")
    assert (code, "green frame" in result) == (0, True)
    assert len(list(scan_stored(RunDir(tmp_path / "run"), Split.TEST, 0))) == 1
    code, _, result = webgym("import", "webrl", "r", "other", "--split", "train")
    assert (code, "green frame" in result) == (0, False)
    assert len(list(scan_stored(RunDir(tmp_path / "other"), Split.TRAIN, 0))) == 1


def test_a_run_that_reads_texts_gets_texts(webgym, tmp_path):
    webrl_episode(tmp_path / "r", "12", ['do(action="Click", element="3")'])
    code, _, result = webgym("import", "webrl", "r", "run", "-c", "webrl", "-s", "context_config.explain_actions=false")
    assert (code, "green frame" in result) == (0, False)
    (trajectory,) = scan_stored(RunDir(tmp_path / "run"), Split.TRAIN, 0)
    assert (trajectory.prompt.version, trajectory.prompt.options["explained"]) == ("webrl", False)
    assert trajectory.steps[0].observation.html == PAGE
    webrl_episode(tmp_path / "marks", "12", ["click [3] where [3]"], trace=False)
    assert webgym("import", "visualagentbench", "marks", "run")[0] == 2


def test_a_terminated_import_leaves_whole_episodes_and_its_state_and_is_resumed(tmp_path):
    for seed in range(40):
        webrl_episode(tmp_path / "results", str(seed), ['do(action="Click", element="3")'])
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4096)  # so that it waits for its reader and the signal
    words = ("import", "webrl", "results", "run", "--json", "--iteration", "3")
    child = forked.begin(*words, cwd=tmp_path, streams={1: writing})
    os.close(writing)
    with os.fdopen(reading) as events:
        while json.loads(events.readline())["event"] != "imported":
            pass
        os.kill(child.pid, signal.SIGTERM)
        events.read()
    child.join(60)
    assert child.exitcode == 143
    run = RunDir(tmp_path / "run")
    assert read_running_command(run).command == "import"
    assert 0 < len(list(scan_stored(run, Split.TEST, 3))) < 40
    assert "resuming `webgym import`" in forked.webgym("resume", "run", cwd=tmp_path).stderr
    stored = [one.id for one in scan_stored(run, Split.TEST, 3)]
    assert len(set(stored)) == len(stored) == 40
