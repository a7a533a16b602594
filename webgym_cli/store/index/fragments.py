"""Index files ("fragments"): each covers a byte range of one append-only source file, given in its name.

The set of files is the index's whole state. Steps and damage of a range are written before its trajectories (or
judgements), so a range with its main fragment is complete. The name also contains the digest of the range's end, which
tells a changed source, and the content's: a truncated or altered fragment counts as missing. Fragments replaced by a
longer one are kept for a while, because running queries may still read them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from webgym_cli.errors import StoreError
from webgym_cli.records.task import Split
from webgym_cli.store.index.schema import FORMAT, TABLES
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import digest_content, open_regular, require_regular

# Number of bytes at the end of a range whose digest detects a changed source file.
_TAIL = 4096
_NAME = re.compile(r"(?P<source>.+)\.(?P<start>\d+)-(?P<end>\d+)\.(?P<tail>[0-9a-f]+)\.(?P<digest>[0-9a-f]+)\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class SourceFile:
    """One append-only source file."""

    split: Split
    iteration: int
    path: Path

    @property
    def name(self) -> str:
        """Name of the source in fragment names."""
        return f"{self.split}.{self.iteration:04d}.{self.path.stem}"

    @property
    def main(self) -> str:
        """Main table: one row per line of the source."""
        return "judgements" if self.path.stem.startswith("verdicts-") else "trajectories"

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables with rows of the source, in writing order: the main one last."""
        return ("damage", self.main) if self.main == "judgements" else ("damage", "steps", self.main)


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """An indexed byte range of a source, or one to be indexed."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.end - self.start


class Catalog:
    """The valid fragments at the time of construction."""

    def __init__(self, run: RunDir) -> None:
        self._paths: dict[tuple[str, str], dict[ByteRange, Path]] = {}
        self.damaged: list[Path] = []
        """Truncated or altered fragments."""
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
        """Return consecutive ranges from the source's first byte on for which every table has a fragment."""
        return find_covering(set.intersection(*(set(self.fragments(table, source.name)) for table in source.tables)))

    def everything(self) -> Iterable[tuple[str, str, ByteRange, Path]]:
        """Yield table, source, range and path of every fragment."""
        for (table, source), spans in self._paths.items():
            for span, path in spans.items():
                yield table, source, span, path


def list_sources(run: RunDir) -> list[SourceFile]:
    """Return the source files, ordered by split, iteration and name."""
    sources = []
    for split in Split:
        for iteration in run.list_iterations(split):
            folder = run.part(split, iteration).parent
            parts = [*folder.glob("part-*.jsonl"), *folder.glob("verdicts-*.jsonl")]
            sources += [SourceFile(split, iteration, path) for path in sorted(parts)]
    for source in sources:
        require_regular(source.path)
    return sources


def read_lines(path: Path, span: ByteRange) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes without line end) of each line of a range that starts at a line start.

    Raises `StoreError` if the file can't be read.
    """
    try:
        with open_regular(path) as file:
            file.seek(span.start)
            while (at := file.tell()) < span.end:
                raw = file.readline()
                if raw.strip():
                    yield at, raw.removesuffix(b"\n")
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror}") from error


def fragments_folder(run: RunDir) -> Path:
    """Return the fragment folder of this index version."""
    return run.index / f"v{FORMAT}"


def find_covering(spans: Iterable[ByteRange]) -> list[ByteRange]:
    """Return the ranges that cover a source from its first byte without gaps, preferring the longest."""
    longest: dict[int, ByteRange] = {}
    for span in spans:
        if span.size and (span.start not in longest or span.end > longest[span.start].end):
            longest[span.start] = span
    chain, end = list[ByteRange](), 0
    while (following := longest.get(end)) is not None:
        chain.append(following)
        end = following.end
    return chain


def remove(run: RunDir, source: SourceFile, start: int) -> None:
    """Remove a source's fragments from a byte offset on: rows of replaced content, or incomplete fragments."""
    # The main table's first: a range without it never counts as complete.
    for table in reversed(source.tables):
        for path in (fragments_folder(run) / table).glob("*.parquet"):
            match = _NAME.fullmatch(path.name)
            if match and match["source"] == source.name and int(match["end"]) > start:
                path.unlink(missing_ok=True)


def read_tail_digest(path: Path) -> str:
    """Return the fragment's digest of the end of its range."""
    match = _NAME.fullmatch(path.name)
    return match["tail"] if match else ""


def name_fragment(source: SourceFile, span: ByteRange, tail: str, content: Path) -> str:
    """Return the file name of a fragment that was written to `content`."""
    return f"{source.name}.{span.start:012d}-{span.end:012d}.{tail}.{digest_content(content)[:16]}.parquet"


def compute_tail_digest(path: Path, span: ByteRange) -> str:
    """Return the digest of the last bytes of a file's range."""
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
    """Return the digest; cached for the file's size and modification time."""
    return digest_content(path)[:16]
