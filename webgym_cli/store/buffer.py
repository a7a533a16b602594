"""The replay buffer's truth: append-only files, one trajectory a line, and beside them one judgement a line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import moment_of
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.judgement import Judgement, effective_verdict, with_verdict
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import append_lines, read_lines

RecordT = TypeVar("RecordT", Trajectory, Judgement)


@dataclass(frozen=True, slots=True)
class LineRef:
    """Where a trajectory's line stands, and that of the judgement that counts: what an index knows of it."""

    id: str
    file: str
    """Relative to the run."""
    offset: int
    """The line's first byte."""
    length: int
    """The line's bytes without its end."""
    verdict_file: str | None = None
    """None: it was never judged."""
    verdict_offset: int | None = None
    verdict_length: int | None = None


def append(run: RunDir, trajectory: Trajectory, rank: int = 0) -> None:
    """Append a finished trajectory durably; its screenshots must be stored already. Raises `StoreError`."""
    append_lines(run.part(trajectory.split, trajectory.iteration, rank), trajectory.to_line())


def append_judgement(run: RunDir, split: Split, iteration: int, judgement: Judgement, rank: int = 0) -> None:
    """Append a judgement durably; older ones of the same trajectory stay. Raises `StoreError`."""
    append_lines(run.verdicts(split, iteration, rank), judgement.to_line())


def read_judgements(
    run: RunDir, split: Split, iteration: int, damage: list[str] | None = None
) -> dict[str, list[Judgement]]:
    """Return an iteration's judgements by trajectory id, oldest first. `damage`: takes each line that can't be read."""
    judgements: dict[str, list[Judgement]] = {}
    for part in sorted(run.verdicts(split, iteration).parent.glob("verdicts-*.jsonl")):
        for _, judgement in _scan_part(part, Judgement, damage):
            judgements.setdefault(judgement.trajectory, []).append(judgement)
    for of_one in judgements.values():
        of_one.sort(key=lambda judgement: moment_of(judgement.judged_at))
    return judgements


def list_iterations(run: RunDir, split: Split) -> list[int]:
    """Return the iterations that have trajectories, oldest first."""
    names = (folder.name.removeprefix("iteration_") for folder in run.trajectories(split).glob("iteration_*"))
    return sorted(int(name) for name in names if name.isdecimal())


def scan(run: RunDir, split: Split, iteration: int, damage: list[str] | None = None) -> Iterator[Trajectory]:
    """Yield an iteration's trajectories in the order of writing, each with the judgement that counts in its outcome.

    A torn or damaged line is skipped and noted in `damage`, as `file:line: reason`.
    """
    verdicts = read_judgements(run, split, iteration, damage)
    for trajectory in scan_stored(run, split, iteration, damage):
        counts = effective_verdict(verdicts.get(trajectory.id, ()))
        yield with_verdict(trajectory, counts) if counts else trajectory


def read(run: RunDir, place: LineRef, *, without: Sequence[str] = ()) -> Trajectory:
    """Read one trajectory and nothing else, with the judgement that counts in its outcome.

    `without`: arrays of numbers (`token_ids`, `logprobs`) to be left None: they are most of a line and of the time
    that it takes. Raises `StoreError` that names file and byte when the line is not what the index knows.
    """
    trajectory = _read_line(run, Trajectory, place.file, place.offset, place.length, without)
    if trajectory.id != place.id:
        raise StoreError(f"{run.root / place.file}: at byte {place.offset} stands {trajectory.id}, not {place.id}")
    if place.verdict_file is None or place.verdict_offset is None or place.verdict_length is None:
        return trajectory
    return with_verdict(trajectory, read_judgement(run, place.verdict_file, place.verdict_offset, place.verdict_length))


def read_or_report(
    run: RunDir, place: LineRef, damaged: list[str], sink: EventSink, *, without: Sequence[str] = ()
) -> Trajectory | None:
    """Read one trajectory as `read` does; one that is damaged is left out, noted and reported."""
    try:
        return read(run, place, without=without)
    except StoreError as error:
        damaged.append(str(error))
        sink(make_event("damaged", line=str(error), message=f"left out: {error}"))
        return None


def prefetch(run: RunDir, places: Iterable[LineRef]) -> None:
    """Hint to the system which trajectories are read next, in the order of their files (`posix_fadvise`)."""
    # Without it each read waits for the one before; with it the disk fetches them together.
    if not hasattr(os, "posix_fadvise"):
        return
    for name, of_one in groupby(places, key=lambda place: place.file):
        with suppress(OSError), (run.root / name).open("rb", buffering=0) as file:  # reading it will tell
            for place in of_one:
                os.posix_fadvise(file.fileno(), place.offset, place.length, os.POSIX_FADV_WILLNEED)


def read_judgement(run: RunDir, file: str, offset: int, length: int) -> Judgement:
    """Read one judgement, by the place of its line, and nothing else. Raises `StoreError` as `read` does."""
    return _read_line(run, Judgement, file, offset, length)


def _read_line(
    run: RunDir, record: type[RecordT], name: str, offset: int, length: int, without: Sequence[str] = ()
) -> RecordT:
    path = f"{run.root}/{name}"
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  a Path would cost more than the reading
            line = os.pread(file.fileno(), length, offset)
        return _parse_line(record, line, without)
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror}") from error
    except ValidationError as error:
        raise StoreError(
            f"{path}: the line at byte {offset} is damaged: {error.errors()[0]['msg']}",
            hint=f"webgym inspect-buffer {run.root} --verify",
        ) from error


def _parse_line(record: type[RecordT], line: bytes, without: Sequence[str]) -> RecordT:
    shorter = line
    for name in without:
        shorter = _array_of(name).sub(b'"%b":null' % name.encode(), shorter)
    try:
        return record.model_validate_json(shorter)
    except ValidationError:
        if shorter == line:
            raise
        return record.model_validate_json(line)  # a task's own field of that name may hold more than numbers


@cache
def _array_of(name: str) -> re.Pattern[bytes]:
    """Return the pattern of a field's array of numbers in a line of JSON."""
    # A quote inside a text is escaped, so the name in plain quotes is a key. The elements are not checked to be
    # numbers: that takes twice as long.
    return re.compile(rb'"%b":\[[^\]]*\]' % name.encode())


def scan_stored(run: RunDir, split: Split, iteration: int, damage: list[str] | None = None) -> Iterator[Trajectory]:
    """Yield an iteration's trajectories as they were written, without what a judge said of them later."""
    for part in sorted(run.part(split, iteration).parent.glob("part-*.jsonl")):
        for number, trajectory in _scan_part(part, Trajectory, damage):
            if reason := find_misplacement(trajectory, split, iteration):
                _note(damage, part, number, reason)
            else:
                yield trajectory


def find_misplacement(trajectory: Trajectory, split: Split, iteration: int) -> str:
    """Return why a trajectory does not belong to this folder; empty when it does."""
    # People copy files between runs, and one in the wrong folder would count for another iteration.
    if (trajectory.split, trajectory.iteration) == (split, iteration):
        return ""
    return f"it is of {trajectory.split} iteration {trajectory.iteration} and stands with {split} iteration {iteration}"


def _scan_part(part: Path, record: type[RecordT], damage: list[str] | None) -> Iterator[tuple[int, RecordT]]:
    for number, line in read_lines(part):
        try:
            yield number, record.model_validate_json(line)
        except ValidationError as error:
            _note(damage, part, number, error.errors()[0]["msg"])


def _note(damage: list[str] | None, part: Path, number: int, reason: str) -> None:
    if damage is not None:
        damage.append(f"{part}:{number}: {reason}")
