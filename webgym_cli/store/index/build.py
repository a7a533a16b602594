"""Incremental update of the index: only bytes appended since the last update are read."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import find_misplacement
from webgym_cli.store.index import fragments
from webgym_cli.store.index.fragments import ByteRange, Catalog, SourceFile
from webgym_cli.store.index.schema import JUDGEMENT, STEP, TRAJECTORY, Row, build_row
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import is_json
from webgym_cli.util.gc_pause import rare_collections

# Bytes of a source per fragment, which bounds the memory.
_CHUNK = 32 << 20
# Block size in bytes of the backward search for the last line end.
_BLOCK = 1 << 20
# Maximum bytes of a source per merged fragment.
_LARGEST = 64 << 20
# How long replaced fragments are kept: running queries may still read them.
_KEEP_SECONDS = 3600.0
_LOCK_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """Planned work for one source file."""

    source: SourceFile
    wrong: bool
    """Whether the fragments belong to other content than the file has now."""
    new: ByteRange
    """Byte range to read."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.new.size and not self.wrong


def update(run: RunDir, sink: EventSink | None = None) -> None:
    """Index the bytes appended since the last update; no lock is taken if there are none. Raises `StoreError`."""
    if all(plan.idle for plan in plan_index(run)):
        return
    with _lock(run):
        _execute(run, plan_index(run), sink)


def rebuild(run: RunDir, sink: EventSink | None = None) -> None:
    """Rebuild the index from the source files. Raises `StoreError`."""
    with _lock(run):
        for folder in run.index.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)
        _execute(run, plan_index(run), sink)


def plan_index(run: RunDir) -> list[SourcePlan]:
    """Return the planned work for each source file."""
    catalog = Catalog(run)
    return [_plan(catalog, source) for source in fragments.list_sources(run)]


def find_superseded(run: RunDir) -> list[Path]:
    """Return obsolete fragments: damaged, replaced long ago, incomplete, or of a deleted source."""
    catalog = Catalog(run)
    chains = {source.name: catalog.chain(source) for source in fragments.list_sources(run)}
    useless = list(catalog.damaged)
    for table, name, span, path in catalog.everything():
        chain = chains.get(name, [])
        longer = next((other for other in chain if other.start <= span.start and span.end <= other.end), None)
        if longer is None or (longer != span and _is_old(catalog.fragments(table, name)[longer])):
            useless.append(path)
    return sorted(useless)


def _is_old(path: Path) -> bool:
    """Whether a fragment is old enough that no running query reads the shorter fragments that it replaced."""
    return time.time() - path.stat().st_mtime >= _KEEP_SECONDS


def _plan(catalog: Catalog, source: SourceFile) -> SourcePlan:
    size = source.path.stat().st_size
    chain = catalog.chain(source)
    last = chain[-1] if chain else ByteRange(0, 0)
    # Source files only grow unless they were repaired or replaced; then the digest of their tail differs.
    wrong = size < last.end or (
        bool(chain)
        and fragments.compute_tail_digest(source.path, last)
        != fragments.read_tail_digest(catalog.fragments(source.main, source.name)[last])
    )
    end = 0 if wrong else last.end
    return SourcePlan(source, wrong, ByteRange(end, _whole_lines(source.path, end, size)))


def _whole_lines(path: Path, start: int, size: int) -> int:
    """Return the end offset of the last complete line."""
    # The remainder is still being written, or was truncated by a crash.
    rest = b""
    with path.open("rb") as file:
        for end in range(size, start, -_BLOCK):
            begin = max(start, end - _BLOCK)
            file.seek(begin)
            _, line_end, after = file.read(end - begin).rpartition(b"\n")
            rest = after + rest
            if line_end:
                break
    return size if not rest or is_json(rest) else size - len(rest)


@rare_collections()
def _execute(run: RunDir, plans: list[SourcePlan], sink: EventSink | None) -> None:
    total, done = sum(plan.new.size for plan in plans), 0
    for plan in plans:
        if not plan.idle:
            fragments.remove(run, plan.source, plan.new.start)
        if plan.wrong and sink is not None:
            sink({"event": "index", "message": f"{plan.source.path} has other content: its index is built anew"})
        for span in _chunks(plan.source.path, plan.new):
            _write(run, plan.source, span)
            done += span.size
            if sink is not None:
                progress = {"done": done, "total": total, "transient": True}
                sink(make_event("index_progress", bar="index", **progress))
        if plan.new.size:
            _join(run, plan.source)
    for path in find_superseded(run):
        path.unlink(missing_ok=True)


def _chunks(path: Path, span: ByteRange) -> Iterator[ByteRange]:
    """Yield the range in chunks that end at line ends."""
    start = span.start
    with path.open("rb") as file:
        while start < span.end:
            file.seek(min(start + _CHUNK, span.end))
            file.readline()
            end = min(file.tell(), span.end)
            yield ByteRange(start, end)
            start = end


def _write(run: RunDir, source: SourceFile, span: ByteRange) -> None:
    from webgym_cli.store.index.arrow import table_of, write  # slow to import

    rows: dict[str, list[Row]] = {table: [] for table in source.tables}
    for start, text in fragments.read_lines(source.path, span):
        add_line(run, source, text, start, rows)
    tables = {table: table_of(table, entries) for table, entries in rows.items()}
    write(run, source, span, tables, fragments.compute_tail_digest(source.path, span))


def add_line(
    run: RunDir, source: SourceFile, text: bytes, start: int, rows: dict[str, list[Row]]
) -> Trajectory | Judgement | None:
    """Add the rows of a line and return its record; for an unusable line, add a row of damage.

    None: the line can't be parsed. A trajectory in the wrong folder is returned, but its only row is one of damage.
    """
    where: Row = {"split": source.split.value, "iteration": source.iteration}
    line: Row = {"file": str(source.path.relative_to(run.root)), "start": start, "size": len(text)}
    try:
        if source.main == "judgements":
            judgement = Judgement.model_validate_json(text)
            owner = {"trajectory": judgement.trajectory, **where}
            rows["judgements"].append({**owner, **build_row(JUDGEMENT, judgement), **line})
            return judgement
        trajectory = Trajectory.model_validate_json(text)
    except ValidationError as error:
        rows["damage"].append({**where, **line, "reason": describe_invalid(error)})
        return None
    if reason := find_misplacement(trajectory, source.split, source.iteration):
        rows["damage"].append({**where, **line, "reason": reason})
    else:
        rows["trajectories"].append({**build_row(TRAJECTORY, trajectory), **line})
        owner = {"trajectory": trajectory.id, **where}
        rows["steps"] += [{**owner, **build_row(STEP, step)} for step in trajectory.steps]
    return trajectory


def _join(run: RunDir, source: SourceFile) -> None:
    """Merge a source's last fragments until the previous one is much longer."""
    # As in a log-structured merge tree: few files, and each row is rewritten only a few times.
    from webgym_cli.store.index.arrow import join, write  # slow to import

    catalog = Catalog(run)
    chain = catalog.chain(source)
    parts = [chain.pop()] if chain else []
    while chain and chain[-1].size <= 2 * (size := sum(part.size for part in parts)):
        if chain[-1].size + size > _LARGEST:
            break
        parts.insert(0, chain.pop())
    if len(parts) < 2:
        return
    of = {table: catalog.fragments(table, source.name) for table in source.tables}
    joined = {table: join([names[part] for part in parts], table) for table, names in of.items()}
    tail = fragments.read_tail_digest(of[source.main][parts[-1]])
    write(run, source, ByteRange(parts[0].start, parts[-1].end), joined, tail)


@contextmanager
def _lock(run: RunDir) -> Iterator[None]:
    """Lock the index. Raises `StoreError` if it can't be written or locked in time."""
    from filelock import FileLock, Timeout  # slow to import

    if run.index.is_symlink():  # in a run of someone else; a rebuild would empty the folder that it leads to
        raise StoreError(f"{run.index}: is a link, not the run's own index", hint=f"rm {run.index}")
    try:
        run.index.mkdir(parents=True, exist_ok=True)
        held = FileLock(run.index / ".lock").acquire(timeout=_LOCK_TIMEOUT)
    except Timeout:
        raise StoreError(
            f"{run.index}: another process has been writing the index for {_LOCK_TIMEOUT:g} s",
            hint="wait for it, then run the same command again",
        ) from None
    except OSError as error:
        raise StoreError(
            f"{run.index}: the index can't be written: {os.strerror(error.errno or 0)}",
            hint="it is derived from the trajectories: give this user leave to write there",
        ) from error
    with held:
        yield
