"""Writers beside writers, readers beside writers, and everything that breaks: what was acknowledged is read back."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.builders import new_run, trajectory
from tests.records.test_judgement import ANSWERED, WEB, judgement
from webgym_cli.errors import StoreError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import EpisodeLabel
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.store.buffer import append, append_judgement, iter_labels, read_plan, scan
from webgym_cli.store.index.build import rebuild, update
from webgym_cli.store.index.query import open_index
from webgym_cli.util import files
from webgym_cli.util.files import append_lines

TRAIN = Split.TRAIN
ROOT = Path(__file__).resolve().parents[2]


def part(run, rank=0):
    return run.part(TRAIN, 0, rank)


def name(number):
    return f"train-0000-{number:05d}"


def ids(run, damage=None):
    return [episode.id for episode in scan(run, TRAIN, 0, damage)]


def indexed(run):
    """Return the ids in the index, in the order of writing, and the number of damaged lines."""
    with open_index(run) as index:
        damage = index.one("SELECT count(*) AS lines FROM damage")["lines"]
        return [place.id for place in index.places()], damage


def test_processes_that_share_a_file_and_a_failing_disk_lose_nothing_of_each_other(run):
    """One that takes its own line back must not take another's, too."""
    command = [sys.executable, "-m", "tests.store.failing_writer", run.root, *map(str, range(0, 400, 100))]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    damage = []
    assert sorted(ids(run, damage)) == sorted(lines)
    assert damage == []
    assert 60 < len(lines) < 150
    assert indexed(run) == (ids(run), 0)


def test_threads_that_share_a_file_lose_nothing(run):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append(run, trajectory(number, instruction="x" * number * 1000)), range(64)))
    assert sorted(ids(run)) == [name(number) for number in range(64)]


def test_readers_never_see_half_a_line(run):
    """The readers' answers grow, and are always the first so many that were written."""
    enough = threading.Event()

    def write():
        for number in count():
            if enough.wait(0.01):  # without a pause the lines grow faster than they are read
                return number
            append(run, trajectory(number, instruction="x" * (number % 7) * 30_000))

    def expected(rows):
        return [name(number) for number in range(len(rows))]

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for _ in range(10):
                damage = []
                plain = ids(run, damage)
                result, damaged = indexed(run)
                assert (plain, damage) == (expected(plain), [])
                assert (result, damaged) == (expected(result), 0)
                assert len(result) >= len(plain)
        finally:
            enough.set()
        written = writer.result()
    assert indexed(run) == ([name(number) for number in range(written)], 0)


def test_the_rest_of_a_line_that_was_torn_when_it_was_read_is_no_line(run, monkeypatch):
    append(run, trajectory(0))
    line = trajectory(1).to_line().encode() + b"\n"
    with part(run).open("ab", buffering=0) as file:
        file.write(line[:400])

        def finished_meanwhile(_raw):
            file.write(line[400:])
            return False

        monkeypatch.setattr(files, "is_json", finished_meanwhile)
        assert [number for number, _ in files.read_lines(part(run))] == [1]
    assert [number for number, _ in files.read_lines(part(run))] == [1, 2]


DAMAGES = {
    "torn": lambda line: line[:200] + b"\n",
    "no UTF-8": lambda line: line.replace(b'"http://a/"', b'"http://\xff/"', 1),
    "another form": lambda line: line.replace(b'"schema":1', b'"schema":2', 1),
    "another record": lambda line: b'{"schema":1,"id":"train-0000-00001"}\n',
    "no record": lambda line: b"[]\n",
    "zeros": lambda line: bytes(len(line) - 1) + b"\n",
    "half a character": lambda line: line.replace("é".encode(), "é".encode()[:1], 1),
    "deep": lambda line: b"[" * 200_000 + b"\n",
}


@pytest.mark.parametrize("known", [True, False], ids=["indexed before", "indexed after"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_one_damaged_line_is_named_and_the_others_are_read(run, damage, known):
    lines = [trajectory(number, instruction="é").to_line().encode() + b"\n" for number in range(3)]
    lines[1] = damage(lines[1])
    assert lines[1].endswith(b"\n")
    part(run).parent.mkdir(parents=True)
    part(run).write_bytes(b"".join(lines))
    if known:
        update(run)
    append(run, trajectory(3))
    calls = []
    assert ids(run, calls) == [name(0), name(2), name(3)]
    assert [text.startswith(f"{part(run)}:2: ") for text in calls] == [True]
    assert indexed(run) == ([name(0), name(2), name(3)], 1)


@pytest.mark.parametrize("length", [1, 4096, 100_000])
@pytest.mark.parametrize("known", [True, False], ids=["indexed before", "indexed after"])
def test_zeros_at_the_end_as_power_loss_leaves_them_cost_nothing_else(run, length, known):
    append(run, trajectory(0))
    with part(run).open("ab") as file:
        file.write(bytes(length))
    if known:
        assert indexed(run) == ([name(0)], 0)
    assert ids(run) == [name(0)]
    append(run, trajectory(1))
    damage = []
    assert (ids(run, damage), len(damage)) == ([name(0), name(1)], 1)
    assert indexed(run) == ([name(0), name(1)], 1)


EPISODE = Episode(id="e", split=TRAIN, iteration=0, task=Task(id="a", instruction="{é}"), seed=1, max_steps=5)
LABEL = EpisodeLabel(trajectory="{é}", who="ben", label="yes", labelled_at="2026-01-01T00:00:00Z")
DAMAGED = ["garbage", "\0\0\0", '{"id": "\0\0', "[1", "7", '{"other": "form"}', "%s,", "{%s", "%s%s", '{"a":' * 9999]


def locate_lines(run, record):
    """Return the file of records of this kind, and what reads it."""
    if record is EPISODE:
        return run.plan(TRAIN, 0, of_sessions=True), partial(read_plan, run, TRAIN, 0, of_sessions=True)
    return run.trajectories(TRAIN) / "iteration_0000" / "labels.jsonl", partial(iter_labels, run)


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("record", [EPISODE, LABEL], ids=["plan", "labels"])
def test_a_damaged_line_of_a_plan_or_of_labels_is_named(run, record, damage, end):
    (file, read), line = locate_lines(run, record), record.model_dump_json()
    append_lines(file, line)
    file.write_text(f"{line}\n{damage.replace('%s', line)}{end}")
    with pytest.raises(StoreError, match=f"{file}:2: "):
        list(read())


@pytest.mark.parametrize("record", [EPISODE, LABEL], ids=["plan", "labels"])
def test_wherever_a_crash_cut_a_line_of_a_plan_or_of_labels_the_others_are_read(run, record):
    (file, read), line = locate_lines(run, record), record.model_dump_json().encode()
    append_lines(file, line.decode())
    for length in range(len(line)):
        file.write_bytes(line + b"\n\n" + line[:length])
        assert list(read()) == [record]
        file.write_bytes(file.read_bytes() + b"\n" + line)
        assert list(read()) == [record, record]


def test_a_line_of_fifty_megabytes_is_a_line(run):
    for number, length in enumerate((10, 50_000_000, 10)):
        append(run, trajectory(number, instruction="x" * length))
    assert ids(run) == indexed(run)[0] == [name(0), name(1), name(2)]


@pytest.mark.parametrize("byte", [1, 2, 3, 8])
@pytest.mark.parametrize("lost", ["damage", "steps", "trajectories"])
def test_rows_of_what_was_there_before_do_not_outlive_a_part_of_their_index(run, lost, byte):
    """The rest of the lost part tells of other content, and nothing but its digest tells it from the new one."""
    append(run, trajectory(0))
    append(run, trajectory(1))
    update(run)
    damage_file(part(run), "flip", 2, byte)
    (fragment,) = run.index.glob(f"v*/{lost}/*.parquet")
    fragment.unlink()
    assert (ids(run), indexed(run)) == ([name(0)], ([name(0)], 1))


def test_a_run_whose_index_cannot_be_written_is_read_by_a_temporary_one(run):
    append(run, trajectory(0))
    run.index.write_text("")  # root may write in read-only folders, so the folder is a file
    events = []
    with open_index(run, progress=events.append) as index:
        assert [row["id"] for row in index.rows("SELECT id FROM trajectories")] == [name(0)]
    assert str(run.index) in events[0]["message"] and run.index.is_file()


def test_a_new_file_and_its_folders_are_made_durable(run, monkeypatch):
    """A line is no use after power loss when the name of its file is gone."""
    synced, real = [], os.fsync

    def fsync(handle):
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = part(run).parent
    append(run, trajectory(0))
    assert synced == [run.root, folder.parent, part(run), folder]
    append(run, trajectory(1))
    assert synced[4:] == [part(run)]


@pytest.mark.parametrize("lacks", ["syncs of folders", "locks"])
def test_a_file_system_without_syncs_of_folders_or_locks_is_used_as_it_is(run, monkeypatch, lacks):
    real = os.fsync

    def fsync(handle):
        if Path(os.readlink(f"/proc/self/fd/{handle}")).is_dir():
            raise OSError(22, "Invalid argument")
        real(handle)

    if lacks == "locks":
        monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(38, "Function not implemented")))
    else:
        monkeypatch.setattr(os, "fsync", fsync)
    append(run, trajectory(0))
    assert ids(run) == [name(0)]


def test_a_lock_that_fails_otherwise_is_an_error_of_ours(run, monkeypatch):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(StoreError, match="Input/output error"):
        append_lines(part(run), "x")


NEAR_THE_END = 1000
"""Bytes in which the random damage hits: the index looks at the last 4096 when it catches up; the rest is verify's."""
WHERE = st.integers(1, NEAR_THE_END)
SPLITS = st.sampled_from([(TRAIN, 0), (TRAIN, 3), (Split.TEST, 0)])
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), SPLITS, st.integers(0, 5), st.integers(0, 1)),
    st.tuples(st.just("judge"), SPLITS, st.integers(0, 5), st.sampled_from([True, False, None])),
    st.tuples(st.just("cut"), st.integers(0, 9), WHERE),
    st.tuples(st.just("flip"), st.integers(0, 9), WHERE, st.integers(1, 255)),
    st.tuples(st.just("add"), st.integers(0, 9), st.sampled_from([b"\0" * 50, b"[]", b"{}\n", b"\n", b"\xff\xfe\n"])),
    st.tuples(st.just("lose"), st.integers(0, 9), st.sampled_from(["unlink", "cut", "flip"])),
    st.tuples(st.just("catch up")),
)


def apply(run, operation, clock):
    kind, *values = operation
    if kind == "append":
        (split, iteration), number, rank = values
        episode = trajectory(number, split=split, iteration=iteration, steps=number, outcome=ANSWERED, task=WEB)
        append(run, episode, rank)
    elif kind == "judge":
        (split, iteration), number, success = values
        failed = {"failure": FailureKind.JUDGE_FAILED, "failure_detail": "?"}
        result = failed if success is None else {"success": success}
        moment = f"2026-01-01T00:00:{clock:02d}.000+00:00"
        whose = f"{split}-{iteration:04d}-{number:05d}"
        append_judgement(run, split, iteration, judgement(trajectory=whose, judged_at=moment, **result))
    elif kind == "catch up":
        update(run)
    elif kind == "lose":
        if files := sorted(run.index.rglob("*.parquet")):
            damage_file(files[values[0] % len(files)], values[1], 20, 255)
    elif files := sorted(run.root.glob("*_trajectories/*/*.jsonl")):
        damage_file(files[values[0] % len(files)], kind, *values[1:])


def damage_file(path, kind, *values):
    content = path.read_bytes()
    if kind == "unlink":
        path.unlink()
    elif kind == "add":
        path.write_bytes(content + values[0])
    elif content and kind == "cut":
        path.write_bytes(content[: -min(values[0], len(content))])
    elif content:
        at = len(content) - min(values[0], len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ values[1]]) + content[at + 1 :])


def plainly(run):
    """Return what a reading of the files gives: the outcomes by split and iteration, and the damaged lines."""
    damage, calls = [], []
    for split in Split:
        for iteration in run.list_iterations(split):
            for episode in scan(run, split, iteration, damage):
                outcome = episode.outcome
                failure = outcome.failure and outcome.failure.value
                calls.append((split.value, iteration, episode.id, outcome.reward, failure, outcome.success))
    return calls, len(damage)


def by_the_index(run):
    """Return the same from the index, and all of its tables."""
    with open_index(run) as index:
        order = "ORDER BY split DESC, iteration, file, start"  # train before test, as `Split` has them
        columns = "split, iteration, id, reward, failure, success"
        rows = [tuple(row.values()) for row in index.rows(f"SELECT {columns} FROM trajectories {order}")]
        names = ("stored", "steps", "judgements", "damage")
        tables = {name: sorted(map(repr, index.rows(f"SELECT * FROM {name}"))) for name in names}
    return rows, tables


@settings(max_examples=40, deadline=None, derandomize=True)
@given(operations=st.lists(OPERATIONS, max_size=25))
def test_in_any_order_the_index_is_what_a_plain_reading_gives(operations, tmp_path_factory):
    run = new_run(tmp_path_factory.mktemp("run"))
    for clock, operation in enumerate(operations):
        apply(run, operation, clock)
    plain, damaged = plainly(run)
    the_index, tables = by_the_index(run)
    assert the_index == plain
    assert len(tables["damage"]) == damaged
    rebuild(run)
    assert by_the_index(run) == (the_index, tables)
