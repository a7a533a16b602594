"""The files of the index: each covers a range of bytes of one append-only file, and says so in its name.

The set of files is the index's whole state. Steps and damage of a range are written before its trajectories (or
judgements), so a range whose main fragment is there is complete. The name has the content's digest, too: a fragment
that was cut off or altered is as good as gone. Fragments that a longer one replaced stay for a while: a query that
began before may still read them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from webgym_cli.errors import StoreError
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import list_iterations
from webgym_cli.store.index.schema import FORMAT, TABLES
from webgym_cli.store.run import RunDir

# Bytes at the end of a range whose digest shows that the file is still the one that was read.
_TAIL = 4096
_NAME = re.compile(r"(?P<source>.+)\.(?P<start>\d+)-(?P<end>\d+)\.(?P<digest>[0-9a-f]+)\.parquet")
_META = b"webgym"


@dataclass(frozen=True, slots=True, order=True)
class SourceFile:
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
class ByteRange:
    """A range of bytes of a source that is indexed, or is to be."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the source."""
        return self.end - self.start


class Catalog:
    """The fragments that are there and whole, as they were when this was made."""

    def __init__(self, run: RunDir) -> None:
        self._paths: dict[tuple[str, str], dict[ByteRange, Path]] = {}
        self.damaged: list[Path] = []
        """Fragments that were cut off or altered."""
        for table in TABLES:
            for path in sorted((fragments_folder(run) / table).glob("*.parquet")):
                match = _NAME.fullmatch(path.name)
                if match is None or not _is_intact(path, match["digest"]):
                    self.damaged.append(path)
                    continue
                span = ByteRange(int(match["start"]), int(match["end"]))
                self._paths.setdefault((table, match["source"]), {})[span] = path

    def fragments(self, table: str, source: str) -> dict[ByteRange, Path]:
        """Return the fragments of a table for a source."""
        return self._paths.get((table, source), {})

    def chain(self, source: SourceFile) -> list[ByteRange]:
        """Return the spans of which every table is there and that cover the source from its first byte on."""
        return find_covering(set.intersection(*(set(self.fragments(table, source.name)) for table in source.tables)))

    def everything(self) -> Iterable[tuple[str, str, ByteRange, Path]]:
        """Yield table, source, span and path of every fragment."""
        for (table, source), spans in self._paths.items():
            for span, path in spans.items():
                yield table, source, span, path


def list_sources(run: RunDir) -> list[SourceFile]:
    """Return the files of the truth, in the order of splits, iterations and names."""
    sources = []
    for split in Split:
        for iteration in list_iterations(run, split):
            folder = run.part(split, iteration).parent
            parts = [*folder.glob("part-*.jsonl"), *folder.glob("verdicts-*.jsonl")]
            sources += [SourceFile(split, iteration, path) for path in sorted(parts)]
    return sources


def read_lines(path: Path, span: ByteRange) -> Iterator[tuple[int, bytes]]:
    """Yield (first byte, bytes without the line's end) of each line in a range that begins with a line.

    Raises `StoreError` when the file can't be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(span.start)
            while (at := file.tell()) < span.end:
                raw = file.readline()
                if raw.strip():
                    yield at, raw.removesuffix(b"\n")
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror}") from error


def fragments_folder(run: RunDir) -> Path:
    """Return the folder of this version's fragments."""
    return run.index / f"v{FORMAT}"


def find_covering(spans: Iterable[ByteRange]) -> list[ByteRange]:
    """Return the spans that cover a source from its first byte on without a gap, the longest of several."""
    longest: dict[int, ByteRange] = {}
    for span in spans:
        if span.size and (span.start not in longest or span.end > longest[span.start].end):
            longest[span.start] = span
    chain: list[ByteRange] = []
    while (following := longest.get(chain[-1].end if chain else 0)) is not None:
        chain.append(following)
    return chain


def write(run: RunDir, source: SourceFile, span: ByteRange, tables: dict[str, pa.Table], tail: str) -> None:
    """Write the fragments of a span, each by rename, the main table's last. Raises `StoreError`."""
    for table in source.tables:
        folder = fragments_folder(run) / table
        temporary = folder / f".{source.name}.{span.start}-{span.end}.new"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(tables[table].replace_schema_metadata({_META: tail}), temporary, compression="zstd")
            name = f"{source.name}.{span.start:012d}-{span.end:012d}.{_digest(temporary)}.parquet"
            temporary.replace(folder / name)
        except (OSError, pa.ArrowException) as error:
            with suppress(OSError):
                temporary.unlink()
            raise StoreError(
                f"{folder}: the index can't be written: {' '.join(str(error).split())}",
                hint="free disk space or fix the permissions, then run the same command again; nothing is lost",
            ) from error


def remove(run: RunDir, source: SourceFile, start: int) -> None:
    """Remove what a source has beyond a byte: rows of other content, or rests of what is incomplete."""
    # The main table's go first: a range without it never counts as complete.
    for table in reversed(source.tables):
        for path in (fragments_folder(run) / table).glob("*.parquet"):
            match = _NAME.fullmatch(path.name)
            if match and match["source"] == source.name and int(match["end"]) > start:
                path.unlink(missing_ok=True)


def read(path: Path, table: str) -> pa.Table:
    """Return a fragment's rows. Raises `OSError` or `pa.ArrowException` when it is damaged."""
    return pq.read_table(path, schema=TABLES[table])


def read_tail_digest(path: Path) -> str:
    """Return the digest that a fragment has of the end of its range; empty when it has none."""
    try:
        metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException):
        return ""
    return metadata.get(_META, b"").decode()


def compute_tail_digest(path: Path, span: ByteRange) -> str:
    """Return the digest of the last bytes of a range of a file."""
    start = max(0, span.end - _TAIL)
    with path.open("rb") as file:
        file.seek(start)
        return hashlib.sha256(file.read(span.end - start)).hexdigest()[:16]


def _is_intact(path: Path, digest: str) -> bool:
    try:
        stat = path.stat()
        return _digest_of_state(path, stat.st_size, stat.st_mtime_ns) == digest
    except OSError:
        return False


@lru_cache(maxsize=4096)
def _digest_of_state(path: Path, size: int, changed: int) -> str:
    """Return the digest, read once while the file has this size and this time of change."""
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
