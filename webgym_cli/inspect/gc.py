"""Removal of unreferenced images and of files left by crashes or replaced by newer index files."""

from __future__ import annotations

import mmap
import re
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.events import EventSink
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.index import fragments
from webgym_cli.store.index.build import find_superseded
from webgym_cli.store.index.fragments import ByteRange
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.files import is_within
from webgym_cli.util.optional import when

_PACKED = struct.Struct("<32sIIIQ")
# One shard per folder of the store: an image's shard is the first byte of its digest.
_SHARDS = 256
# Seconds for which unreferenced files are kept: images are stored before the line that references them.
GRACE = 3600.0
_NAMED = re.compile(rb'"sha256"\s*:\s*"([0-9a-f]{64})"')
_IN_DATASET = re.compile(rb"([0-9a-f]{64})\.(?:png|webp)")
# Temporary file of an interrupted atomic write.
_TORN = re.compile(r"\.(.+\.(json|jsonl|png|webp|html)|lock\.holder)\.[a-z0-9_]{8}")
# Temporary file of an index fragment.
_TORN_INDEX = re.compile(r"\..+\.new")
# Maximum number of damaged lines in an error.
_SHOWN = 3
# Lines between two progress events.
_EVERY = 200


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference to an image by a step."""

    sha256: str
    width: int
    """Width in pixels according to the line."""
    height: int
    """Height in pixels."""
    source: int
    """Number of the source file in the order of reading."""
    start: int
    """Byte offset of the line."""


@dataclass(slots=True)
class References:
    """Collects references in 52 bytes each, so that millions fit into memory; returns them by folder of the store."""

    _shards: list[bytearray] = field(default_factory=lambda: [bytearray() for _ in range(_SHARDS)])

    def add(self, sha256: str, width: int = 0, height: int = 0, source: int = 0, start: int = 0) -> None:
        """Add a reference, or an image name without further data."""
        digest = bytes.fromhex(sha256)
        self._shards[digest[0]] += _PACKED.pack(digest, width, height, source, start)

    def of(self, folder: str) -> Iterator[Reference]:
        """Yield the references to the images of a folder (`3f`) in the order of adding."""
        for digest, *rest in _PACKED.iter_unpack(self._shards[int(folder, 16)]):
            yield Reference(digest.hex(), *rest)

    @staticmethod
    def folders() -> list[str]:
        """Return the names of all folders, in order."""
        return [f"{number:02x}" for number in range(_SHARDS)]


class WasteKind(StrEnum):
    """Why a file can be removed."""

    UNNAMED = "unnamed images"
    """Referenced neither by a trajectory, nor by an agent's call, nor by the prepared dataset."""
    TORN = "torn writes"
    """Left by a process that died while writing."""
    INDEX = "old index files"
    """Replaced by a longer fragment, or written by another version of webgym."""


@dataclass(frozen=True, slots=True)
class Waste:
    """A removable file."""

    kind: WasteKind
    path: Path
    size: int
    """Bytes."""


def find_waste(
    run: RunDir, *, grace: float = GRACE, even_with_damage: bool = False, sink: EventSink | None = None
) -> Iterator[Waste]:
    """Yield removable files that are older than `grace` seconds. Needs the lock if they are then removed.

    Raises `StoreError` if a trajectory line is damaged, because it may reference images, unless `even_with_damage`;
    names that are readable in such lines count even then. Targets of links outside of the run are never yielded.
    """
    before, skipped = time.time() - grace, set[Path]()
    for kind, path in _find(run, even_with_damage, sink):
        folder = path.parent
        try:
            status = path.lstat()
        except OSError:
            continue
        # a younger file may be incomplete because another process writes it
        if not path.is_file() or status.st_mtime >= before:
            continue
        if is_within(folder, run.root):
            yield Waste(kind, path, status.st_size)
        elif sink is not None and folder not in skipped:
            skipped.add(folder)
            sink({"event": "gc_skipped", "message": f"{folder} leads out of the run: nothing there is removed"})


def _find(run: RunDir, even_with_damage: bool, sink: EventSink | None) -> Iterator[tuple[WasteKind, Path]]:
    named = References()
    damage = _read_names(run, named, sink)
    if damage and not even_with_damage:
        more = when(len(damage) > _SHOWN, f" and {len(damage) - _SHOWN} more")
        raise StoreError(
            f"damaged lines may name images that would be removed: {', '.join(damage[:_SHOWN])}{more}",
            hint=f"webgym inspect-buffer {run.root} --verify names them; --even-with-damage removes what no other "
            "line names",
        )
    # A training may still use the prepared dataset, whatever its age. The calls of open sessions and of helpers are in
    # no trajectory.
    for sha256 in (*_find_digests(run.dataset, _IN_DATASET), *read_call_images(run)):
        named.add(sha256)
    store = ScreenshotStore(run.screenshots)
    for folder in store.folders():
        names = {reference.sha256 for reference in named.of(folder)}
        for sha256, entry in list(store.images(folder)):
            if sha256 not in names:
                yield WasteKind.UNNAMED, Path(entry.path)
    yield from ((WasteKind.TORN, path) for path in _find_torn(run, store))
    yield from ((WasteKind.INDEX, path) for path in find_superseded(run))
    for path in sorted(run.index.glob("v*/*/*.parquet")):
        if fragments.fragments_folder(run) not in path.parents:
            yield WasteKind.INDEX, path


def remove_waste(pieces: Iterable[Waste], *, dry_run: bool) -> dict[WasteKind, dict[str, Any]]:
    """Remove the files unless `dry_run`; return `kind`, `files` and `bytes_freed` of each kind. Raises `StoreError`."""
    freed: dict[WasteKind, dict[str, Any]]
    freed = {kind: {"kind": kind.value, "files": 0, "bytes_freed": 0} for kind in WasteKind}
    for waste in pieces:
        if not dry_run:
            try:
                waste.path.unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(f"{waste.path}: can't be removed: {error.strerror}") from error
        freed[waste.kind]["files"] += 1
        freed[waste.kind]["bytes_freed"] += waste.size
    return freed


def read_call_images(run: RunDir) -> Iterator[str]:
    """Yield the digests of the images of agents' calls, of helpers too."""
    return _find_digests(run.sessions, _NAMED)


def _find_digests(folder: Path, pattern: re.Pattern[bytes]) -> Iterator[str]:
    for path in sorted(folder.glob("*.json*")):
        if path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for match in pattern.finditer(content):
                    yield match[1].decode()


def _read_names(run: RunDir, named: References, sink: EventSink | None) -> list[str]:
    """Collect the images referenced by trajectories; return the damaged lines as `file: byte N`."""
    damage: list[str] = []
    sources = [source for source in fragments.list_sources(run) if source.main == "trajectories"]
    sizes = [source.path.stat().st_size for source in sources]
    for number, source in enumerate(sources):
        for count, (start, line) in enumerate(fragments.read_lines(source.path, ByteRange(0, sizes[number]))):
            try:
                for step in Trajectory.model_validate_json(line).steps:
                    for picture in step.observation.pictures:
                        named.add(picture.sha256)
            except ValidationError:
                damage.append(f"{source.path}: byte {start}")
                for match in _NAMED.finditer(line):
                    named.add(match[1].decode())
            if sink is not None and not count % _EVERY:
                done = sum(sizes[:number]) + start
                sink({"event": "gc_progress", "bar": "names", "done": done, "total": sum(sizes), "transient": True})
    return damage


def _find_torn(run: RunDir, store: ScreenshotStore) -> Iterator[Path]:
    written = [run.root, run.plan(Split.TRAIN, 0).parent, run.status().parent]
    written += [store.root / name for name in store.folders()]
    places = [*((folder, _TORN) for folder in written), *((path, _TORN_INDEX) for path in run.index.glob("v*/*"))]
    for folder, pattern in places:
        for path in sorted(folder.glob("*")):
            if pattern.fullmatch(path.name):
                yield path
