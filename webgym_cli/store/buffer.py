"""Replay buffer: plans of episodes, and append-only JSON Lines files of trajectories, judgements and labels."""

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

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.base import describe_invalid, moment_of
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.judgement import EpisodeLabel, Judgement, effective_verdict, with_verdict
from webgym_cli.records.task import Episode, Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.run import RunDir, append_to_run, refuse_invalid
from webgym_cli.util.files import open_regular, read_jsonl, read_lines
from webgym_cli.util.text import and_more

RecordT = TypeVar("RecordT", Trajectory, Judgement, Episode, EpisodeLabel)
# Labels of people, beside the trajectories of an iteration.
_LABELS = "labels.jsonl"


@dataclass(frozen=True, slots=True)
class LineRef:
    """Location of a trajectory's line and of its effective judgement's line, as stored in the index."""

    id: str
    file: str
    """Path relative to the run."""
    offset: int
    """Byte offset of the line."""
    length: int
    """Length of the line in bytes, without the line end."""
    verdict_file: str | None = None
    """None if the trajectory was never judged."""
    verdict_offset: int | None = None
    verdict_length: int | None = None


def refuse_unknown(run: RunDir, missing: Sequence[str]) -> UsageError:
    """Return the error of ids that no trajectory has, which names the first one."""
    more = and_more(len(missing))
    return UsageError(f"{run.root}: no trajectory {missing[0]!r}{more}", hint=f"webgym inspect-buffer {run.root} -q")


def append(run: RunDir, trajectory: Trajectory, rank: int = 0) -> None:
    """Append a finished trajectory durably; its screenshots must be stored already. Raises `StoreError`."""
    append_to_run(run, run.part(trajectory.split, trajectory.iteration, rank), trajectory.to_line())


def append_judgement(run: RunDir, split: Split, iteration: int, judgement: Judgement, rank: int = 0) -> None:
    """Append a judgement durably; older ones of the same trajectory stay. Raises `StoreError`."""
    append_to_run(run, run.verdicts(split, iteration, rank), judgement.to_line())


def read_judgements(
    run: RunDir, split: Split, iteration: int, damage: list[str] | None = None
) -> dict[str, list[Judgement]]:
    """Return the judgements of an iteration by trajectory id, oldest first. Unreadable lines are added to `damage`."""
    judgements: dict[str, list[Judgement]] = {}
    for part in sorted(run.verdicts(split, iteration).parent.glob("verdicts-*.jsonl")):
        for _, judgement in _scan_part(part, Judgement, damage):
            judgements.setdefault(judgement.trajectory, []).append(judgement)
    for of_one in judgements.values():
        of_one.sort(key=lambda judgement: moment_of(judgement.judged_at))
    return judgements


def scan(run: RunDir, split: Split, iteration: int, damage: list[str] | None = None) -> Iterator[Trajectory]:
    """Yield the trajectories of an iteration in file order, with the effective judgement in their outcome.

    Truncated and damaged lines are skipped and added to `damage` as `file:line: reason`.
    """
    verdicts = read_judgements(run, split, iteration, damage)
    for trajectory in scan_stored(run, split, iteration, damage):
        yield with_verdict(trajectory, effective_verdict(verdicts.get(trajectory.id, ())))


def read(run: RunDir, place: LineRef, *, without: Sequence[str] = ()) -> Trajectory:
    """Read one trajectory by its location, with the effective judgement in its outcome.

    `without`: numeric arrays (`token_ids`, `logprobs`) to skip and leave None; they take most of the parsing time.
    Raises `StoreError` with file and byte offset if the line does not match the index.
    """
    trajectory = _read_line(run, Trajectory, place.file, place.offset, place.length, without)
    if trajectory.id != place.id:
        raise StoreError(
            f"{run.root / place.file}: at byte {place.offset} stands {trajectory.id}, not {place.id}",
            hint=f"webgym inspect-buffer {run.root} --verify",
        )
    if place.verdict_file is None or place.verdict_offset is None or place.verdict_length is None:
        return trajectory
    return with_verdict(trajectory, read_judgement(run, place.verdict_file, place.verdict_offset, place.verdict_length))


def read_or_report(
    run: RunDir, place: LineRef, damaged: list[str], sink: EventSink, *, without: Sequence[str] = ()
) -> Trajectory | None:
    """Read one trajectory; if it is damaged, add the error to `damaged`, emit an event and return None."""
    try:
        return read(run, place, without=without)
    except StoreError as error:
        damaged.append(str(error))
        sink(make_event("damaged", line=str(error), message=f"left out: {error}"))
        return None


def prefetch(run: RunDir, places: Iterable[LineRef]) -> None:
    """Prefetch lines into the page cache (`posix_fadvise`); `places` should be grouped by file."""
    # Without the hint the reads are sequential; with it the kernel issues them concurrently.
    if not hasattr(os, "posix_fadvise"):
        return
    for name, of_one in groupby(places, key=lambda place: place.file):
        with suppress(OSError), (run.root / name).open("rb", buffering=0) as file:  # the read itself reports the error
            for place in of_one:
                os.posix_fadvise(file.fileno(), place.offset, place.length, os.POSIX_FADV_WILLNEED)


def read_judgement(run: RunDir, file: str, offset: int, length: int) -> Judgement:
    """Read one judgement by the location of its line. Raises `StoreError` if the line can't be read or parsed."""
    return _read_line(run, Judgement, file, offset, length)


def _read_line(
    run: RunDir, record: type[RecordT], name: str, offset: int, length: int, without: Sequence[str] = ()
) -> RecordT:
    path = f"{run.root}/{name}"
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  building a Path takes longer than the read
            line = os.pread(file.fileno(), length, offset)
        return _parse_line(record, line, without)
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror}") from error
    except ValidationError as error:
        raise StoreError(
            f"{path}: the line at byte {offset} is damaged: {describe_invalid(error)}",
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
        return record.model_validate_json(line)  # an array of that name in the task's own data may be nested


@cache
def _array_of(name: str) -> re.Pattern[bytes]:
    """Return the regex that matches a field with a flat array in a line of JSON."""
    # Quotes inside a JSON string are escaped, so the quoted name is always a key. Matching only numeric elements
    # would take twice as long.
    return re.compile(rb'"%b":\[[^\]]*\]' % name.encode())


def scan_stored(run: RunDir, split: Split, iteration: int, damage: list[str] | None = None) -> Iterator[Trajectory]:
    """Yield the trajectories of an iteration as stored, without later judgements."""
    for part in sorted(run.part(split, iteration).parent.glob("part-*.jsonl")):
        for number, trajectory in _scan_part(part, Trajectory, damage):
            if reason := find_misplacement(trajectory, split, iteration):
                _note(damage, part, number, reason)
            else:
                yield trajectory


def find_misplacement(trajectory: Trajectory, split: Split, iteration: int) -> str:
    """Return why a trajectory does not belong to this folder, or an empty string if it does."""
    # Files copied between runs can end up in the wrong folder; their trajectories would count for another iteration.
    if (trajectory.split, trajectory.iteration) == (split, iteration):
        return ""
    return f"it is of {trajectory.split} iteration {trajectory.iteration} and stands with {split} iteration {iteration}"


def _scan_part(part: Path, record: type[RecordT], damage: list[str] | None) -> Iterator[tuple[int, RecordT]]:
    for number, line in read_lines(part):
        try:
            yield number, record.model_validate_json(line)
        except ValidationError as error:
            _note(damage, part, number, describe_invalid(error))


def _note(damage: list[str] | None, part: Path, number: int, reason: str) -> None:
    if damage is not None:
        damage.append(f"{part}:{number}: {reason}")


def read_plan(run: RunDir, split: Split, iteration: int, *, of_sessions: bool = False) -> tuple[Episode, ...]:
    """Return the episodes planned so far; empty without a plan. Raises `StoreError`.

    `of_sessions`: those of the gateway's sessions.
    """
    path = run.plan(split, iteration, of_sessions=of_sessions)
    if not path.is_file():
        return ()
    hint = "restore it from a copy of the run, or start another run"
    if of_sessions:  # a line that a crash cut off is of a session that never opened
        return tuple(_read_appended(path, Episode, "no episode of this version", hint))
    with refuse_invalid(f"{path}: not a plan of this version", hint):
        return tuple(map(Episode.model_validate, read_jsonl(path)))


def append_label(run: RunDir, file: str, label: EpisodeLabel) -> None:
    """Append a label of a trajectory that is in `file` of the run, durably; earlier ones stay. Raises `StoreError`."""
    append_to_run(run, (run.root / file).with_name(_LABELS), label.to_line())


def iter_labels(run: RunDir) -> Iterator[EpisodeLabel]:
    """Yield the labels of a run, those of each person and trajectory in order. Raises `StoreError`."""
    for split in Split:
        for file in sorted(run.trajectories(split).glob(f"iteration_*/{_LABELS}")):
            hint = "mend or remove that line; webgym label writes one a label"
            yield from _read_appended(file, EpisodeLabel, "no label", hint)


def _read_appended(path: Path, record: type[RecordT], what: str, hint: str) -> Iterator[RecordT]:
    """Yield the records of a file that grows line by line, without lines that a crash cut off. Raises `StoreError`."""
    with open_regular(path) as file:
        lines = file.read().split(b"\n")
    for number, line in enumerate(map(bytes.strip, lines), 1):
        try:
            if line:
                yield record.model_validate_json(line)
        except ValidationError as error:
            is_cut_off = line.startswith(b"{") and error.errors()[0]["msg"].startswith("Invalid JSON: EOF")
            if not is_cut_off:  # edited or overwritten
                raise StoreError(f"{path}:{number}: {what}: {describe_invalid(error)}", hint=hint) from error
