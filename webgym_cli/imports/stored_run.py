"""Another run of webgym as a source: its stored episodes, with all their judgements and pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from webgym_cli.errors import StoreError
from webgym_cli.imports.source import ImportFormat, SkippedEpisode, SkipReason, StoredEpisode, compute_digest
from webgym_cli.records.base import moment_of
from webgym_cli.records.series import IMPORTED_ID
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import LineRef, read, read_judgements
from webgym_cli.store.index.query import LINE_REF, Index, open_index, temporary_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.optional import when

_SELECTED = "SELECT {place} AS place, split, iteration FROM trajectories WHERE {where} ORDER BY {order}"
_ORDER = "iteration, split, file, start"
_STORED = "SELECT task_key, seed, policy, started_at, seconds, steps FROM stored"


def find(path: Path) -> list[Path]:
    """Return the run of webgym that a path is."""
    run = RunDir(path)
    return when(run.exists and any(run.list_iterations(split) for split in Split), [path])


def find_newest_iteration(source: Path, where: str = "true") -> int | None:
    """Return the newest iteration of the episodes that match a condition; None without any."""
    with _open(source) as index:
        newest: int | None = index.one(f"SELECT max(iteration) AS newest FROM trajectories WHERE {where}")["newest"]
        return newest


def read_run(source: Path, images: Path | None, where: str = "true") -> Iterator[StoredEpisode | SkippedEpisode]:
    """Yield the episodes of a run that match a condition. `images`: an image store in place of the run's."""
    run, screenshots = RunDir(source), ScreenshotStore(images or RunDir(source).screenshots)
    judgements, folder = {}, None
    with _open(source) as index:
        for row in index.rows(_SELECTED.format(place=LINE_REF, where=where, order=_ORDER)):
            if folder != (folder := (Split(row["split"]), row["iteration"])):
                judgements = read_judgements(run, *folder)
            place = replace(LineRef(**row["place"]), verdict_file=None)  # as stored: the judgements are imported too
            try:
                trajectory = read(run, place)
            except StoreError as error:
                yield SkippedEpisode(SkipReason.NOT_UNDERSTOOD, f"{source}, {place.id}", str(error))
                continue
            verdicts = tuple(judgements.get(trajectory.id, ()))
            # What no import changes and no two attempts have in common, with the time as the index has it.
            started = moment_of(trajectory.started_at).replace(tzinfo=None).isoformat()
            about = trajectory.task.key, trajectory.seed, trajectory.policy, started, trajectory.seconds
            digest = compute_digest(*about, len(trajectory.steps))
            # Attempts from one file of another system have all of that in common: their ids tell them apart.
            if imported := re.search(IMPORTED_ID, trajectory.id):
                digest = imported[1]
            yield StoredEpisode(f"{source}, {trajectory.id}", digest, trajectory, verdicts, screenshots)


def list_identities(index: Index) -> Iterator[str]:
    """Yield the digests of an index's episodes, as `StoredEpisode` has them."""
    for row in index.rows(_STORED):
        yield compute_digest(*{**row, "started_at": row["started_at"].isoformat()}.values())


def _select(source: Path, where: str) -> ImportFormat:
    """Return the format for the episodes of a run that match an SQL condition. Raises `UsageError` for no condition."""
    with _open(source) as index:
        where = index.check_where(where)
    iteration = partial(find_newest_iteration, where=where)
    return replace(RUN, read=partial(read_run, where=where), iteration_of=iteration)


@contextmanager
def _open(source: Path) -> Iterator[Index]:
    """Yield the index of a run without writing into the run."""
    with temporary_index(RunDir(source)) as aside, open_index(aside) as index:
        yield index


RUN = ImportFormat(
    find, read_run, "a run of webgym with episodes", text=None, iteration_of=find_newest_iteration, select=_select
)
