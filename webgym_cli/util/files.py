"""Writing so that a crash or a full disk loses nothing, reading so that a torn last line is no surprise."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import jsonlines

from webgym_cli.errors import StoreError

# Takes a line without its end.
WriteLine = Callable[[str], None]


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Replace a file by rename, durably: a reader sees the old content or the new, no part. Raises `StoreError`.

    `mode`: who may read it; at no moment may more than these.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary = ""
    try:
        _make_folder(path.parent)
        # In the same folder: a rename over file systems is no rename.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        # fsync before the rename: else a crash can leave an empty file under the final name.
        Path(temporary).replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise StoreError(
            f"{path}: can't be written: {error.strerror}",
            hint="free disk space or fix the permissions, then run the same command again",
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises `StoreError` that names the file and the place."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not JSON: {error}", hint=f"restore {path} from a copy") from error


def append_lines(path: Path, *lines: str) -> None:
    """Append lines durably, all or none. A torn line left by a crash is closed first; one of our own is taken back.

    Several processes may append to one file. Raises `StoreError` when the disk refuses; the file is then as it was
    before.
    """
    try:
        _make_folder(path.parent)
        with path.open("ab+", buffering=0) as file:  # a buffer would be written again when the file is closed
            _lock_file(file)
            end = file.seek(0, os.SEEK_END)
            # A crash can leave half a line; it is closed, so that this line stays readable.
            torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
            payload = memoryview(("\n" if torn else "").encode() + "".join(f"{line}\n" for line in lines).encode())
            try:
                # An unbuffered write may take only a part.
                while payload:
                    payload = payload[file.write(payload) :]
                os.fsync(file.fileno())
                if not end:
                    _sync_folder(path.parent)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), end)
                raise
    except OSError as error:
        raise StoreError(
            f"{path}: can't append: {error.strerror}", hint="free disk space, then run the same command again"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: those of files that were made, renamed or removed. Raises `OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no such thing
            raise
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each with a durable name."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for missing_folder in reversed(missing):
        missing_folder.mkdir(exist_ok=True)
        _sync_folder(missing_folder.parent)


def _lock_file(file: Any) -> None:
    """Keep other processes from appending until the file is closed: else one could take back another's line."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):  # a file system without locks
            raise


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values as JSON Lines, atomically."""
    write_atomic(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


@contextmanager
def open_line_writer(path: Path) -> Iterator[WriteLine]:
    """Give what writes a line into a new file, which takes its name when the block ends well. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")

    def write_line(line: str) -> None:
        file.write(f"{line}\n")

    try:
        with temporary.open("w", encoding="utf-8") as file:
            yield write_line
            file.flush()
            os.fsync(file.fileno())  # before the rename: a power cut must not leave an empty file with a good name
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes) of each whole, non-empty line; a torn last line is skipped.

    A last line that lacks only its line end is whole: the next append would close it and bring it back. Bytes: a line
    that is no UTF-8 any more is the parser's to refuse, not ours to patch.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if raw.strip() and (raw.endswith(b"\n") or is_json(raw)):
                yield number, raw.rstrip(b"\n")
            if not raw.endswith(b"\n"):
                return  # what a writer adds meanwhile is the rest of this line, and none of its own


def is_json(raw: bytes) -> bool:
    """Whether bytes are one JSON value."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yield the values of a JSON Lines file. Raises `StoreError` that names file and line."""
    with path.open(encoding="utf-8") as file, jsonlines.Reader(file) as reader:
        try:
            yield from reader.iter(skip_empty=True)
        except jsonlines.InvalidLineError as error:
            raise StoreError(f"{path}:{error.lineno}: {error.args[0].split(' (line')[0]}") from error


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises `OSError`, for a FIFO or a device as well: reading one may never end."""
    # without O_NONBLOCK the opening of a FIFO waits for its writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def is_within(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, or is it, once links in both are followed."""
    return path.resolve().is_relative_to(folder.resolve())


def replace_folder(new: Path, final: Path) -> None:
    """Put a finished folder in place of another by renames. Raises `StoreError`."""
    old = final.with_name(f".{final.name}.old")
    try:
        shutil.rmtree(old, ignore_errors=True)
        if final.exists():
            final.rename(old)
        new.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{final}: can't be replaced: {error.strerror}") from error


def replace_link(link: Path, target: Path) -> None:
    """Point a link at a sibling or descendant folder by one rename. Moves a real folder in its place aside."""
    if link.is_dir() and not link.is_symlink():
        link.rename(link.with_name(f"{link.name}.before-{datetime.now(UTC):%Y%m%d_%H%M%S}"))
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, link.parent))
    temporary.replace(link)
