import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.builders import new_run, trajectory
from tests.store.disk import disk_full_at
from webgym_cli.errors import StoreError
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, scan
from webgym_cli.util.files import (
    append_lines,
    read_json,
    read_jsonl,
    read_lines,
    rebuild_folder,
    write_atomic,
    write_json,
    write_lines,
)


def ids(run, damage=None):
    return [episode.id for episode in scan(run, Split.TRAIN, 0, damage)]


def test_lines_come_back_in_order(run):
    for number in (2, 0, 1):
        append(run, trajectory(number))
    append(run, trajectory(3), rank=1)
    assert ids(run) == [f"train-0000-0000{number}" for number in (2, 0, 1, 3)]


def test_iterations_and_splits_are_apart_and_a_copy_that_somebody_made_is_none(run):
    append(run, trajectory(iteration=10))
    append(run, trajectory(iteration=2))
    append(run, trajectory(split=Split.TEST, iteration=1))
    (run.trajectories(Split.TRAIN) / "iteration_0000.bak").mkdir()
    assert run.list_iterations(Split.TRAIN) == [2, 10]
    assert run.list_iterations(Split.TEST) == [1]


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, len(trajectory(1, instruction="网é\u2028").to_line().encode()) + 1))
def test_wherever_the_last_line_is_cut_the_others_are_read(cut, tmp_path_factory):
    run = new_run(tmp_path_factory.mktemp("run"))
    append(run, trajectory(0))
    append(run, trajectory(1, instruction="网é\u2028"))
    part = run.part(Split.TRAIN, 0)
    os.truncate(part, part.stat().st_size - cut)
    before = ids(run)
    append(run, trajectory(2))
    damage = []
    assert before == ["train-0000-00000", "train-0000-00001"][: 2 if cut == 1 else 1]
    assert ids(run, damage) == [*before, "train-0000-00002"]
    torn = 1 < cut <= len(trajectory(1, instruction="网é\u2028").to_line().encode())
    assert [line.split(": ")[0] for line in damage] == [f"{part}:2"] * torn


@pytest.mark.parametrize("room", [0, 1, 700])
@pytest.mark.parametrize("length", [1000, 20000])  # within Python's buffer and beyond it
def test_a_full_disk_leaves_the_part_file_as_it_was(run, room, length):
    append(run, trajectory(0))
    part = run.part(Split.TRAIN, 0)
    before = part.read_bytes()
    with disk_full_at(len(before) + room), pytest.raises(StoreError, match=str(part)) as caught:
        append(run, trajectory(1, instruction="x" * length))
    assert part.read_bytes() == before
    assert "free disk space" in caught.value.hint
    append(run, trajectory(1))
    assert ids(run) == ["train-0000-00000", "train-0000-00001"]


def test_a_disk_that_fails_the_sync_leaves_the_part_file_as_it_was(run, monkeypatch):
    append(run, trajectory(0))
    before = run.part(Split.TRAIN, 0).read_bytes()

    def fails(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(StoreError, match="No space left"):
            append(run, trajectory(1))
    assert run.part(Split.TRAIN, 0).read_bytes() == before


def test_a_full_disk_leaves_an_atomic_file_and_no_rest(tmp_path):
    path = tmp_path / "state.json"
    write_json(path, {"a": 1})
    with disk_full_at(1000), pytest.raises(StoreError, match=str(path)):
        write_atomic(path, "x" * 100_000)
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o002, 0o664), (0o022, 0o644)])
def test_files_have_the_permissions_that_the_umask_leaves(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "open", "x")
        write_atomic(tmp_path / "private", "x", mode=0o600)
        append_lines(tmp_path / "lines", "x")
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("open", "private", "lines")}
    assert modes == {"open": mode, "private": 0o600, "lines": mode}


def test_a_file_where_a_folder_should_be_is_an_error_of_ours(tmp_path):
    (tmp_path / "a").write_text("")
    for write in (lambda path: write_atomic(path, "x"), lambda path: append_lines(path, "x")):
        with pytest.raises(StoreError):
            write(tmp_path / "a" / "b")


def test_json_that_is_none_names_the_file_and_the_place(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(StoreError, match=r"x\.json: can't be read"):
        read_json(path)
    path.write_text('{"a": 1')
    with pytest.raises(StoreError, match=r"x\.json: not JSON: .*line 1"):
        read_json(path)


def test_json_lines_come_back_and_a_bad_one_is_named(tmp_path):
    values = [{"a": "网\u2028\x85\r"}, [1], "x"]
    write_lines(tmp_path / "x.jsonl", values)
    assert list(read_jsonl(tmp_path / "x.jsonl")) == values
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(StoreError, match=r"x\.jsonl:3: "):
        list(read_jsonl(tmp_path / "x.jsonl"))


def test_line_numbers_count_empty_lines(tmp_path):
    (tmp_path / "x").write_bytes(b"a\n\nb\n{\n \nto")
    assert list(read_lines(tmp_path / "x")) == [(1, b"a"), (3, b"b"), (4, b"{")]


def test_a_folder_is_replaced_whole(tmp_path):
    final = tmp_path / "data"
    for content in ("1", "2"):
        with rebuild_folder(final) as new:
            (new / content).write_text(content)
        assert [path.name for path in final.iterdir()] == [content]
    with pytest.raises(StoreError, match="No space"), rebuild_folder(final):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == [final]
