import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from tests.records.builders import trajectory
from webgym_cli.errors import StoreError, Terminated
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.status import (
    SILENT_AFTER,
    RolloutState,
    begin,
    count_stored,
    is_process_alive,
    lock_run,
    note_command,
    read_lock_holder,
    read_running_command,
    read_status,
    write_status,
)
from webgym_cli.util.files import write_json, write_lines

WRITER = """
import sys
from pathlib import Path
from webgym_cli.store.run import RunDir
from webgym_cli.store.status import write_status
write_status(RunDir(Path(sys.argv[1])), {"started_at": "2026-01-01T00:00:00+00:00", "split": "train"})
print("written", flush=True)
sys.stdin.read()
"""


def snapshot(started=0, **changes):
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=started)
    return {"started_at": at.isoformat(), "split": "train", "iteration": 0, **changes}


def altered(run, **changes):
    """Rewrite fields of a status file."""
    value = json.loads(run.status().read_text())
    write_json(run.status(), {**value, **changes})


def only(run):
    (status,) = read_status(run)
    return status


def test_a_status_comes_back(run):
    assert read_status(run) == []
    write_status(run, snapshot(number=7))
    status = only(run)
    assert (status.pid, status.host) == (os.getpid(), socket.gethostname())
    assert status.snapshot == snapshot(number=7)
    assert (status.state, status.seen()) == (RolloutState.RUNNING, RolloutState.RUNNING)
    assert status.may_go_on()
    assert os.listdir(run.status().parent) == ["rollout-0.json"]


def test_a_killed_writer_is_lost(run):
    command, pipe = [sys.executable, "-c", WRITER, str(run.root)], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout.readline() == "written\n"
    assert only(run).seen() is RolloutState.RUNNING
    process.kill()
    while is_process_alive(process.pid):  # from the kill on a zombie, until it is waited for
        os.sched_yield()
    assert only(run).seen() is RolloutState.LOST
    process.communicate()
    assert only(run).seen() is RolloutState.LOST
    assert not only(run).may_go_on()
    write_status(run, snapshot())
    altered(run, process_started=12345.0)  # another process of the same number
    assert only(run).seen() is RolloutState.LOST


@pytest.mark.parametrize(("here", "goes_on"), [(True, True), (False, False)])
def test_a_writer_without_a_word_is_silent(run, here, goes_on):
    write_status(run, snapshot())
    if not here:
        altered(run, host="elsewhere", pid=2**22 + 1)
    status = only(run)
    just, late = (status.updated_at + timedelta(seconds=SILENT_AFTER + extra) for extra in (-0.1, 0.1))
    assert status.seen(just) is RolloutState.RUNNING
    assert status.seen(late) is RolloutState.SILENT
    assert status.may_go_on(late) is goes_on


@pytest.mark.parametrize("state", [RolloutState.FINISHED, RolloutState.FAILED, RolloutState.INTERRUPTED])
def test_what_ended_stays_as_it_ended(run, state):
    write_status(run, snapshot(), state)
    altered(run, pid=2**22 + 1, updated_at="2020-01-01T00:00:00Z")
    assert only(run).seen() is state
    assert not only(run).may_go_on()


@pytest.mark.parametrize("content", ["", '{"rank": 0, "pi', "[]", '{"rank": 0}', "of another version"])
def test_what_can_not_be_read_is_left_out(run, content):
    write_status(run, snapshot())
    write_status(run, snapshot(split="test"))
    altered(run, schema=2)
    if content != "of another version":
        run.status().write_text(content)
    assert only(run).snapshot["split"] == "test"


def test_of_two_rollouts_those_that_go_on_are_told_else_the_newest(run):
    def shown_splits():
        return [status.snapshot["split"] for status in read_status(run)]

    write_status(run, snapshot())
    write_status(run, snapshot(started=5, split="test"))
    assert shown_splits() == ["train", "test"]
    write_status(run, snapshot(), RolloutState.FINISHED)
    assert shown_splits() == ["test"]
    write_status(run, snapshot(started=5, split="test"), RolloutState.FINISHED)
    assert shown_splits() == ["test"]
    write_status(run, snapshot(started=9))
    assert shown_splits() == ["train"]


def test_a_reader_never_sees_a_part(run):
    ready, done = threading.Event(), threading.Event()

    def write():
        for number in range(100):
            write_status(run, snapshot(number=number, weight="x" * 50_000))
            ready.set()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    ready.wait()
    seen = []
    while not done.is_set():
        seen.append(only(run).snapshot["number"])
    writer.join()
    assert seen == sorted(seen)
    assert only(run).snapshot["number"] == 99


def test_a_status_that_can_not_be_written_is_an_error_of_ours(run):
    run.status().parent.write_text("a file")
    with pytest.raises(StoreError, match=r"rollout-0\.json: can't be written"):
        write_status(run, snapshot())


def test_the_holder_of_a_run_is_told_a_dead_one_is_nobody_but_one_elsewhere_counts(run):
    assert read_lock_holder(run) is None
    with lock_run(run, "rollout runs/a"):
        assert read_lock_holder(run)["command"] == "rollout runs/a"
    assert read_lock_holder(run) is None
    note = {"pid": 2**22 + 1, "host": socket.gethostname(), "command": "loop", "since": "2026-01-01T00:00:00Z"}
    write_json(run.lock_holder, note)
    assert read_lock_holder(run) is None
    write_json(run.lock_holder, {**note, "host": "elsewhere"})
    assert read_lock_holder(run)["host"] == "elsewhere"
    write_json(run.lock_holder, {**note, "pid": os.getpid()})
    assert read_lock_holder(run) is None, "a later process has the same pid"


RESUMED = {  # `!`: interrupted
    "loop": (
        "loop! judge score",
        "loop! judge! judge",
        "loop! rollout",
        "loop! gateway!",
        "loop! train",
        "loop! prepare",
    ),
    "curriculum": ("curriculum! judge! train", "curriculum! train! train"),
    "rollout": ("rollout! judge", "loop! judge! rollout! score"),
    "judge": ("loop! judge!", "judge! score", "loop! judge! score", "judge! score! judge! score"),
    "train": (
        "loop! train! judge",
        "train! rollout",
        "train! import generate",
        "train! generate judge",
        "train! import score",
    ),
    None: ("rollout! rollout", "loop! judge! loop", "prepare! train", "rollout! train", "judge! prepare"),
}


@pytest.mark.parametrize(("interrupted", "cases"), RESUMED.items())
def test_a_command_that_was_interrupted_is_resumed_after_others_that_do_not_go_on_with_it(run, interrupted, cases):
    for commands in cases:
        run.state.unlink(missing_ok=True)
        for command in commands.split():
            with contextlib.suppress(Terminated), note_command(run, command.rstrip("!"), {"number": 7}):
                if command.endswith("!"):
                    raise Terminated
        note = read_running_command(run)
        assert (note and (note.command, note.options)) == (interrupted and (interrupted, {"number": 7})), commands


def test_a_damaged_note_is_replaced(run):
    for damage in ("{", "[]", '{"command": "train"}'):
        run.root.mkdir(exist_ok=True)
        run.state.write_text(damage)
        with pytest.raises(StoreError, match="damaged"):
            read_running_command(run)
        assert begin(run, "judge", {}) == []
        assert read_running_command(run).command == "judge"


def test_stored_lines_are_counted(run):
    assert count_stored(run) == []
    write_lines(run.plan(Split.TRAIN, 0), [{"number": number} for number in range(4)])
    append(run, trajectory(0))
    append(run, trajectory(1), rank=1)
    append(run, trajectory(0, split=Split.TEST, iteration=2))
    row = {"split": "train", "iteration": 0, "planned": 4, "stored": 2, "judgements": 0}
    test = {"split": "test", "iteration": 2, "planned": 0, "stored": 1, "judgements": 0}
    assert count_stored(run) == [row, test]
    append(run, trajectory(2))
    facts = {"models": {}, "settings_digest": "0", "success": True, "judged_at": "2026-01-01T00:00:00Z"}
    judgement = Judgement(trajectory="train-0000-00000", **facts)
    append_judgement(run, Split.TRAIN, 0, judgement)
    assert count_stored(run) == [{**row, "stored": 3, "judgements": 1}, test]
    run.part(Split.TRAIN, 0).write_text("one\n")
    assert count_stored(run)[0]["stored"] == 2
