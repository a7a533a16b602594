"""What a node needs that can't see the run's folder, and how it is laid out there.

Every file travels once, under its SHA-256, in pieces, and is kept by it. The folders are built anew of links for each
training, below a root of the node's own; where a file names others (the launch, the dataset), the names are moved too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.errors import JobError, UsageError
from webgym_cli.records.base import Record
from webgym_cli.train.llamafactory.plan import LAUNCH_FILE
from webgym_cli.train.training_plan import TrainPlan
from webgym_cli.util.files import read_json, write_atomic

# Bytes that travel at once.
PIECE = 8 * 2**20
_IMAGES = "images"


class FileEntry(Record):
    """A file as it travels."""

    path: str
    """Its absolute path, there where it comes from."""
    size: int
    digest: str
    """SHA-256 of its bytes, in hex."""


class TransferManifest(Record):
    """All that a training needs."""

    entries: tuple[FileEntry, ...]
    launch: dict[str, Any]
    """The configuration that is run, with the paths of node 0."""
    folder: str
    """The training's working folder on node 0."""
    datasets: tuple[str, ...]
    """The paths of the files whose samples name images."""

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum({entry.digest: entry.size for entry in self.entries}.values())


def build_manifest(plan: TrainPlan) -> TransferManifest:
    """Return what a node needs to take part in a training. Reads every file once. Raises `UsageError`."""
    launch, datasets = plan.launch, _datasets(plan.launch)
    files = {*_folder(launch.get("model_name_or_path")), *_folder(launch.get("resume_from_checkpoint"))}
    files |= {Path(str(launch["dataset_dir"])) / "dataset_info.json", *datasets}
    if isinstance(launch.get("deepspeed"), str):
        files.add(Path(launch["deepspeed"]))
    for dataset in datasets:
        files |= {
            Path(_absolute(dataset, image)) for sample in read_json(dataset) for image in sample.get(_IMAGES) or ()
        }
    return TransferManifest(
        entries=tuple(map(_entry, sorted(files))),
        launch=launch,
        folder=str(plan.folder),
        datasets=tuple(map(str, datasets)),
    )


def _datasets(launch: dict[str, Any]) -> list[Path]:
    folder = Path(str(launch["dataset_dir"]))
    info = read_json(folder / "dataset_info.json")
    names = [name.strip() for key in ("dataset", "eval_dataset") for name in str(launch.get(key) or "").split(",")]
    return sorted({folder / info[name]["file_name"] for name in names if "file_name" in info.get(name, {})})


def _absolute(dataset: Path, image: str) -> str:
    """Return the path of a sample's image, which is relative to the dataset's folder."""
    return os.path.normpath(dataset.parent / image)


def _folder(name: object) -> Iterator[Path]:
    """Yield the files of a local folder; a name on the hub is none, and every node asks there itself."""
    if name and (folder := Path(str(name))).is_dir():
        yield from (path for path in folder.rglob("*") if path.is_file())


def _entry(path: Path) -> FileEntry:
    try:
        found = path.stat()
        digest = _digest(str(path), found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise UsageError(f"{path}: can't be sent to the other nodes: {error.strerror}") from error
    return FileEntry(path=str(path.absolute()), size=found.st_size, digest=digest)


@lru_cache(maxsize=2**17)
def _digest(path: str, size: int, changed: int) -> str:
    """Return a file's SHA-256; `size` and `changed` tell whether it is still the same file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_piece(path: Path, offset: int) -> bytes:
    """Return a piece of a file."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)


class NodeCache:
    """A node's own store of what travelled."""

    def __init__(self, root: Path) -> None:
        self._kept = root / "files"
        self.tree = root / "tree"
        """Below it, each path of node 0 has its counterpart."""
        self._kept.mkdir(parents=True, exist_ok=True)

    def missing(self, manifest: TransferManifest) -> list[FileEntry]:
        """Return what is not here yet, each digest once."""
        wanted = {entry.digest: entry for entry in manifest.entries}
        return [entry for digest, entry in wanted.items() if not (self._kept / digest).is_file()]

    def put(self, entry: FileEntry, offset: int, piece: bytes) -> None:
        """Take a piece, in order; the last one is checked and makes the file. A piece may come twice."""
        if (self._kept / entry.digest).is_file():
            return
        unfinished = self._kept / f"{entry.digest}.part"
        with unfinished.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(piece)
            file.truncate()
        if offset + len(piece) == entry.size:
            with unfinished.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry.digest:
                    raise JobError(f"{entry.path}: it changed while it was sent", hint="run the same command again")
            unfinished.replace(self._kept / entry.digest)

    def lay_out(self, manifest: TransferManifest) -> Path:
        """Build a training's folders and return where it works. What it does not need is dropped."""
        shutil.rmtree(self.tree, ignore_errors=True)
        for entry in manifest.entries:
            place = self.moved(entry.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            # Hard links: laying out costs no disk and no copy.
            os.link(self._kept / entry.digest, place)
        for dataset in manifest.datasets:
            place, samples = self.moved(dataset), read_json(self.moved(dataset))
            for sample in samples:
                images = (_absolute(Path(dataset), image) for image in sample.get(_IMAGES) or ())
                sample[_IMAGES] = [str(self.moved(image)) for image in images]
            write_atomic(place, json.dumps(samples, ensure_ascii=False))
        folder = self.moved(manifest.folder)
        folder.mkdir(parents=True, exist_ok=True)
        launch = {key: self._moved_value(value) for key, value in manifest.launch.items()}
        launch["output_dir"] = str(folder)
        write_atomic(folder / LAUNCH_FILE, yaml.safe_dump(launch, sort_keys=False, allow_unicode=True))
        self._drop_others({entry.digest for entry in manifest.entries})
        return folder

    def moved(self, path: str) -> Path:
        """Return the counterpart of a path of node 0."""
        return self.tree / os.path.normpath(path).lstrip("/")

    def _moved_value(self, value: Any) -> Any:
        here = isinstance(value, str) and value.startswith("/") and self.moved(value).exists()
        return str(self.moved(value)) if here else value

    def _drop_others(self, wanted: set[str]) -> None:
        for path in self._kept.iterdir():
            if path.name not in wanted:
                path.unlink()
