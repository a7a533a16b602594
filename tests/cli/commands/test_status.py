"""`webgym status` and the live board, as people and scripts meet them."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from rich.console import Console

from tests import forked
from tests.cli.made_rollout import plain, rollout
from tests.cli.terminal import rest, terminal
from tests.records.builders import CRASHED, published, trajectory
from webgym_cli.cli.live_view import LiveView
from webgym_cli.cli.output import Output, ProgressBoard
from webgym_cli.cli.stage import stage
from webgym_cli.config.load import load
from webgym_cli.store import metrics
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.store.status import RolloutState, begin, lock_run, read_running_command, write_status
from webgym_cli.util.files import write_json

COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3|4|9)[0-7]m")
LIVE = """
import sys
from webgym_cli.cli.output import Output
BAR = {"done": 1, "total": 9, "facts": "FACTS"}
with Output(as_json=True).progress() as board:
    status = __import__("json").loads(sys.stdin.readline())
    for number in range(3):
        board({"event": "trajectory", "id": f"t{number}", "bar": "train 0", **BAR})
        board({"event": "status", "transient": True, **status})
    board({"event": "note", "message": "a note for people"})
    sys.stdin.readline()
    board({"event": "rollout", "split": "train", "iteration": 0, "message": "the summary"})
"""


def until(ours, text):
    """Read from a terminal until this text has come, and return all that came."""
    shown = b""
    while text.encode() not in shown:
        shown += os.read(ours, 65536)
    return shown.decode()


def live(snapshot, **environment):
    """Run a command whose stderr is a terminal; return what the terminal showed before and after the end."""
    with terminal() as (ours, theirs):
        child = subprocess.Popen(
            [sys.executable, "-c", LIVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment},
        )
        os.close(theirs)
        child.stdin.write(json.dumps(snapshot) + "\n")
        child.stdin.flush()
        shown = until(ours, "a.com/b") if environment.get("TERM") != "dumb" else ""
        child.stdin.write("\n")
        child.stdin.close()
        after = rest(ours)
        data = [json.loads(line) for line in child.stdout]
        child.stdout.close()
        assert child.wait(30) == 0
    return shown, after, data


def test_the_board_lives_on_stderr_and_data_goes_to_stdout():
    shown, after, data = live(rollout(running=2).snapshot())
    assert "30.0% (10.8-60.3%)" in shown
    assert "FACTS" not in shown.split("success", 1)[1]  # the board stands in for the bar
    assert COLOUR.search(shown)
    assert "a note for people" in shown + after
    assert "FACTS" in after  # and the bar comes back
    assert [event["event"] for event in data] == ["trajectory"] * 3 + ["note", "rollout"]
    assert "\x1b[?25h" in after  # the cursor is back
    shown, after, _ = live(rollout(running=2).snapshot(), NO_COLOR="1")
    assert "a.com/b" in shown and not COLOUR.search(shown + after)


def test_without_a_terminal_nothing_is_drawn(capsys):
    board = ProgressBoard(Output(as_json=True))
    with board.show_live():
        board({"event": "status", "transient": True, **rollout().snapshot()})
        board({"event": "note", "message": "hello"})
    output = capsys.readouterr()
    assert (output.out, output.err) == ('{"event": "note", "message": "hello"}\n', "hello\n")


def test_a_command_that_ends_while_its_run_is_made_is_noted(tmp_path, monkeypatch):
    run = RunDir(tmp_path / "new")
    monkeypatch.setattr("webgym_cli.store.code.record_code", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), stage("eval", run, load(overrides=["rollout.policy=http://h/v1"]), Output()):
        pass
    assert run.provenance.exists()
    assert read_running_command(run).command == "eval"


def test_a_command_that_fails_before_it_begins_leaves_the_note_of_the_one_before_it(run, monkeypatch):
    begin(run, "loop", {})
    monkeypatch.setattr("webgym_cli.store.code.record_code", Mock(side_effect=OSError))
    with pytest.raises(OSError), stage("eval", run, load(), Output()):
        pass
    assert read_running_command(run).command == "loop"


def test_snapshots_stay_out_of_the_log(run, capsys):
    with stage("rollout", run, load(), Output(as_json=True)) as at:
        at.sink({"event": "status", "transient": True, **rollout().snapshot()})
        at.sink({"event": "plan"})
    logged = [json.loads(line)["event"] for line in (at.logs / "webgym.log").read_text().splitlines()]
    assert logged == ["plan"]
    assert capsys.readouterr().out == '{"event": "plan"}\n'


@pytest.mark.parametrize("more", [[], ["--json"], ["--watch"], ["--watch", "--json"]], ids=" ".join)
def test_without_a_rollout_it_says_so(webgym, run, more):
    outcome = webgym("status", run.root, *more)
    assert outcome.stderr == f"{run.root}: no rollout yet\nnext: webgym rollout {run.root}\n"
    if more:
        (result,) = map(json.loads, outcome.stdout.splitlines())
        assert (result["rollout"], result["stored"], result["policy_version"]) == (None, [], 0)


def test_a_reward_model_s_run_leads_to_its_training_and_to_scores(webgym, run):
    create_or_open(run.orm, load())
    result = webgym("status", run.orm.root)
    it, model = f"{run.orm.root}: the outcome reward model of {run.root}", run.orm.model(load())
    assert result.stderr == f"{it}, not trained yet\nnext: webgym train {run.orm.root}\n"
    published(run.orm, load())
    result = webgym("status", run.orm.root)
    assert result.stderr == f"{it}, version 1\nnext: webgym score {run.root} --orm {model}\n"


def test_a_rollout_at_work_is_shown_and_needs_no_lock(webgym, run):
    append(run, trajectory(0))
    append(run, trajectory(1, outcome=CRASHED))
    unknown = {"success_rate": None, "interval": [0, 1]}
    metrics.append_event(run, {"event": "evaluation", "iteration": 0, "episodes": 4, **unknown})
    begin(run, "loop", {})
    monitor = rollout()
    monitor.stages.servers = lambda: {"http://b/v1": {"requests": 9, "failures": 3, "outstanding": 2, "open": 1}}
    write_status(run, monitor.snapshot())
    with lock_run(run, "loop runs/a"):
        record = json.loads(webgym("status", run.root, "--json").stdout)
        result = webgym("status", run.root)
    assert (record["rollout"]["state"], record["rollout"]["done"], record["rollout"]["running"]) == ("running", 10, 30)
    assert record["rollout"]["stages"]["policy"]["now"] == 30
    assert (record["command"]["command"], record["command"]["at_work"]) == ("loop", True)
    assert record["holder"]["command"] == "loop runs/a"
    assert (record["rollout"]["pid"], record["rollout"]["servers"]["http://b/v1"]["open"]) == (os.getpid(), 1)
    assert record["stored"] == [{"split": "train", "iteration": 0, "planned": 0, "stored": 2, "judgements": 0}]
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert ["rollout", "train 0", "vllm", "running", "10", "100"] in lines
    assert ["stored", "train", "0", "0", "2", "0"] in lines and ["queue", "owed", "548"] in lines
    assert ["evaluation", "0", "4", "", "0", "1"] in lines
    assert len([line for line in lines if line[0] == "episode"]) == 30
    assert result.stderr.startswith("webgym loop has run since ")


def test_the_workers_of_other_nodes_are_counted(webgym, run):
    monitor = rollout(running=2)
    timings = rollout(running=3).stages.timings()
    monitor.worker_timings = lambda: [timings, timings]
    write_status(run, monitor.snapshot())
    result = json.loads(webgym("status", run.root, "--json").stdout)["rollout"]
    assert (result["ranks"], result["running"], result["stages"]["policy"]["count"]) == (2, 8, 3)


def test_training_episodes_and_an_evaluation_beside_them_are_both_told_whoever_wrote_last(webgym, run):
    training, evaluation = rollout(running=2).snapshot(), {**rollout(running=1).snapshot(), "split": "test"}
    evaluation |= {"bar": "test 1", "iteration": 1}
    for one in (training, evaluation, training, evaluation):
        write_status(run, one)
        record = json.loads(webgym("status", run.root, "--json").stdout)
        assert record["rollout"]["bar"] == "train 0"
    assert record["evaluation"]["bar"] == "test 1"
    lines = webgym("status", run.root).stdout.splitlines()
    assert [line.split("\t")[1] for line in lines if line.startswith("rollout\t")] == ["train 0", "test 1"]
    write_status(run, evaluation, RolloutState.FINISHED)
    record = json.loads(webgym("status", run.root, "--json").stdout)
    assert (record["rollout"]["bar"], record["evaluation"]) == ("train 0", None)


def test_the_board_tells_of_training_episodes_and_of_an_evaluation_at_the_same_time():
    evaluation = {**rollout(running=1).snapshot(), "split": "test", "bar": "test 1", "done": 3}
    board = LiveView(rollout(running=2).snapshot(), beside=evaluation)
    console = Console(width=80, height=24, record=True, file=io.StringIO())
    console.print(board)
    shown = console.export_text()
    assert "train 0  vllm  running  10/100" in shown and "test 1  vllm  running  3/100" in shown
    assert len(shown.splitlines()) <= 24


def test_an_interrupted_rollout_names_the_next_command(webgym, run):
    begin(run, "rollout", {})
    write_status(run, rollout().snapshot(), RolloutState.INTERRUPTED)
    result = webgym("status", run.root)
    assert "rollout\ttrain 0\tvllm\tinterrupted\t10\t100\n" in result.stdout
    assert result.stderr.endswith(f"was interrupted\nnext: webgym resume {run.root}\n")
    assert "episode\t" not in result.stdout


XTERM = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}


def begin_status(run, streams, *more, **environment):
    """Begin to tell a run's status into these streams, whose descriptors are its own from then on."""
    child = forked.begin("status", run.root, *more, cwd=run.root.parent, streams=streams, **environment)
    os.close(streams[1])
    return child


def exit_code(child):
    child.join(30)
    return child.exitcode


@contextmanager
def watched(run, *more):
    """Watch a run, and give the lines that are told of it; it must end by itself."""
    reading, writing = os.pipe()
    child = begin_status(run, {1: writing}, "--watch", *more)
    with os.fdopen(reading) as lines:
        yield map(json.loads, lines)
    assert exit_code(child) == 0


def test_a_person_sees_the_board(run):
    append(run, trajectory(0))
    write_status(run, rollout().snapshot(), RolloutState.FINISHED)
    with terminal() as (ours, theirs):
        child = begin_status(run, {1: theirs}, **XTERM)
        shown = "\n".join(plain(rest(ours).split("\r\n")))
        assert exit_code(child) == 0
    assert "train 0  vllm  finished  10/100" in shown and "stored trajectories" in shown


def test_watch_ends_with_the_rollout(run):
    monitor = rollout()
    write_status(run, monitor.snapshot())
    with watched(run) as records:
        seen = [next(records)]
        write_status(run, monitor.snapshot(), RolloutState.FINISHED)
        seen += records
    states = [item["rollout"]["state"] for item in seen]
    assert (states[0], states.count("finished"), states[-1]) == ("running", 1, "finished")


def test_watch_waits_for_the_rollout_of_a_command_that_has_begun(run):
    write_status(run, rollout().snapshot(), RolloutState.FINISHED)
    value = json.loads(run.status().read_text())
    write_json(run.status(), {**value, "updated_at": (datetime.now(UTC) - timedelta(hours=1)).isoformat()})
    with lock_run(run, "rollout"):
        begin(run, "rollout", {})
        with watched(run, "--json") as records:
            assert next(records)["rollout"]["state"] == "finished"
            assert next(records)["command"]["at_work"] is True
            write_status(run, rollout().snapshot(), RolloutState.FAILED)
            last = [one["rollout"]["state"] for one in records][-1]
    assert last == "failed"


def test_watch_redraws_while_the_rollout_goes_on_and_ctrl_c_ends_it_with_130(run):
    write_status(run, rollout(url="https://first.com").snapshot())
    with terminal() as (ours, theirs):
        errors = run.root.parent / "errors"
        child = begin_status(run, {1: theirs, 2: str(errors)}, "--watch", **XTERM)
        until(ours, "first.com")
        write_status(run, rollout().snapshot())
        assert "slots busy" in until(ours, "a.com/b")
        os.kill(child.pid, signal.SIGINT)
        assert "\x1b[?25h" in rest(ours)  # the cursor is back
        assert exit_code(child) == 130
    assert "interrupted" in errors.read_text()
    assert "Traceback" not in errors.read_text()


def test_the_board_that_is_watched_ends_as_the_rollout_ended(run):
    write_status(run, rollout().snapshot())
    with terminal() as (ours, theirs):
        child = begin_status(run, {1: theirs}, "--watch", **XTERM)
        until(ours, "a.com/b")
        write_status(run, rollout().snapshot(), RolloutState.FINISHED)
        assert "finished" in rest(ours)
        assert exit_code(child) == 0
