"""The files of the index: each covers a range of bytes of one append-only file, and says so in its name.

The set of files is the index's whole state. Steps and damage of a range are written before its trajectories (or
judgements), so a range whose main fragment is there is complete. Fragments that a longer one replaced stay for a
while: a query that began before may still read them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from webgym_cli.errors import StoreError
from webgym_cli.records.task import Split
from webgym_cli.store.index.schema import FORMAT, TABLES
from webgym_cli.store.run import RunDir

TAIL = 4096
"""Bytes at the end of a range whose digest shows that the file is still the one that was read."""
_NAME = re.compile(r"(?P<source>.+)\.(?P<start>\d+)-(?P<end>\d+)\.parquet")
_END = b"PAR1"
_META = b"webgym"


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """One append-only file of the truth."""

    split: Split
    iteration: int
    path: Path

    @property
    def name(self) -> str:
        """How fragments call it."""
        return f"{self.split}.{self.iteration:04d}.{self.path.stem}"

    @property
    def main(self) -> str:
        """The table that its lines are the rows of."""
        return "judgements" if self.path.stem.startswith("verdicts-") else "trajectories"

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it gives rows to, in the order of writing: the main one last."""
        return ("damage", self.main) if self.main == "judgements" else ("damage", "steps", self.main)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A range of bytes of a source that is indexed, or is to be."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the source."""
        return self.end - self.start


def sources(run: RunDir) -> list[Source]:
    """Return the files of the truth, in the order of splits, iterations and names."""
    found = []
    for split in Split:
        for folder in sorted(run.trajectories(split).glob("iteration_*")):
            number = folder.name.removeprefix("iteration_")
            if number.isdecimal():
                parts = [*folder.glob("part-*.jsonl"), *folder.glob("verdicts-*.jsonl")]
                found += [Source(split, int(number), path) for path in sorted(parts)]
    return found


def home(run: RunDir) -> Path:
    """Return the folder of this version's fragments."""
    return run.index / f"v{FORMAT}"


def path_of(run: RunDir, table: str, source: str, span: Span) -> Path:
    """Return where a fragment is or would be."""
    return home(run) / table / f"{source}.{span.start:012d}-{span.end:012d}.parquet"


def listed(run: RunDir, table: str) -> dict[str, list[Span]]:
    """Return the spans of a table's fragments that are whole files, by source."""
    found: dict[str, list[Span]] = {}
    for path in sorted((home(run) / table).glob("*.parquet")):
        if (match := _NAME.fullmatch(path.name)) and _is_whole(path):
            found.setdefault(match["source"], []).append(Span(int(match["start"]), int(match["end"])))
    return found


def covering(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that cover a source from its first byte on without a gap, the longest where there are several."""
    longest: dict[int, Span] = {}
    for span in spans:
        if span.size and (span.start not in longest or span.end > longest[span.start].end):
            longest[span.start] = span
    chain: list[Span] = []
    while (following := longest.get(chain[-1].end if chain else 0)) is not None:
        chain.append(following)
    return chain


def write(run: RunDir, source: Source, span: Span, tables: dict[str, pa.Table], tail: str) -> None:
    """Write the fragments of a span, each by rename, the main table's last. Raises `StoreError`."""
    meta = json.dumps({"source": source.name, "start": span.start, "end": span.end, "tail": tail})
    for table in source.tables:
        path = path_of(run, table, source.name, span)
        temporary = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tables[table].replace_schema_metadata({_META: meta})
            pq.write_table(content, temporary, compression="zstd", write_page_checksum=True)
            temporary.replace(path)
        except (OSError, pa.ArrowException) as error:
            with suppress(OSError):
                temporary.unlink()
            raise StoreError(
                f"{path}: the index can't be written: {' '.join(str(error).split())}",
                hint="free disk space or mend the permissions, then run the same command again; nothing is lost",
            ) from error


def read(run: RunDir, table: str, source: str, span: Span) -> pa.Table:
    """Return a fragment's rows. Raises `OSError` or `pa.ArrowException` when it is damaged."""
    return pq.read_table(path_of(run, table, source, span), schema=TABLES[table], page_checksum_verification=True)


def tail_of(run: RunDir, source: Source, span: Span) -> str:
    """Return the digest that a span's fragment has of the end of its range; empty when it has none."""
    path = path_of(run, source.main, source.name, span)
    try:
        meta = json.loads((pq.read_schema(path).metadata or {}).get(_META, b"{}"))
    except (OSError, ValueError, pa.ArrowException):
        return ""
    return str(meta.get("tail", ""))


def tail_digest(file: Any, span: Span) -> str:
    """Return the digest of the last bytes of a range of an open binary file."""
    start = max(span.start, span.end - TAIL)
    file.seek(start)
    return hashlib.sha256(file.read(span.end - start)).hexdigest()[:16]


def remove(run: RunDir, source: str, spans: Sequence[Span]) -> None:
    """Remove the fragments of spans, the main ones first, so that what is left is never taken for whole."""
    for table in ("trajectories", "judgements", "steps", "damage"):
        for span in spans:
            with suppress(OSError):
                path_of(run, table, source, span).unlink(missing_ok=True)


def _is_whole(path: Path) -> bool:
    """Whether a fragment has Parquet's mark at its end: one that was cut off has not."""
    try:
        with path.open("rb") as file:
            file.seek(-len(_END), 2)
            return file.read() == _END
    except OSError:
        return False
