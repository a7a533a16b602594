"""Crash-safe file access: durable atomic writes and appends without keys; readers tolerate a truncated last line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from webgym_cli.errors import StoreError
from webgym_cli.util.json_values import as_object, encode_json
from webgym_cli.util.optional import when
from webgym_cli.util.secrets import redact

T = TypeVar("T")
# Writes a line given without its line end.
WriteLine = Callable[[str], None]


def user_folder(variable: str, usual: str) -> Path:
    """Return a folder of the user's by the XDG specification: the variable's, else `usual` in the home folder."""
    return Path(os.environ.get(variable) or os.path.expanduser(f"~/{usual}"))  # noqa: PTH111 - there may be no home


@contextmanager
def disk_errors(place: object) -> Iterator[None]:
    """Convert an `OSError` of writing into a `StoreError` that names the place."""
    try:
        yield
    except BrokenPipeError:
        raise  # stdout's reader (`| head`) closed the pipe, which is no write error
    except OSError as error:
        raise StoreError(
            f"{place}: can't be written: {error.strerror or error}",
            hint="free disk space or fix the permissions, then run the same command again",
        ) from error


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o666) -> None:
    """Replace a file durably by rename; readers see the old or the new content. Raises `StoreError`.

    `mode`: permissions, less those of the umask, which are never wider at any moment.
    """
    payload = redact(data).encode(errors="replace") if isinstance(data, str) else data
    # In the same folder, because rename does not work across file systems. `webgym gc` knows such names.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    with disk_errors(path):
        try:
            _make_folder(path.parent)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            # fsync before the rename: else a crash can leave an empty file under the final name.
            temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomic(path, encode_json(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises `StoreError` with file and position."""
    try:
        with open_regular(path) as file:
            return json.loads(file.read().decode("utf-8-sig"))
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not JSON: {error}", hint=f"restore {path} from a copy") from error


def read_optional_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; an empty one for a file that is missing, damaged or holds something else."""
    with contextlib.suppress(StoreError):
        return as_object(read_json(path))
    return {}


def file_size(path: Path) -> int:
    """Return a file's size in bytes, 0 if it is missing."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def digest_content(path: Path) -> str:
    """Return the SHA-256 of a file's content. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def append_lines(path: Path, *lines: str) -> None:
    """Append lines durably, all or none. A truncated line left by a crash is terminated first.

    Several processes may append to one file. Raises `StoreError` if writing fails; the file then has its previous
    content.
    """
    with disk_errors(path):
        _make_folder(path.parent)
        # unbuffered: a buffer would be written again when the file is closed
        with open(path, "ab+", buffering=0, opener=_open_own) as file:
            _lock_file(file)
            end = file.seek(0, os.SEEK_END)
            # A crash can leave a truncated line; ending it keeps the new line readable.
            torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
            text = "".join(f"{redact(line)}\n" for line in lines)
            payload = memoryview((when(torn, "\n") + text).encode(errors="replace"))
            try:
                # An unbuffered write may be partial.
                while payload:
                    payload = payload[file.write(payload) :]
                os.fsync(file.fileno())
                if not end:
                    _sync_folder(path.parent)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), end)
                raise


def _open_own(path: str, flags: int) -> int:
    """Open a file that is no link: in a run of someone else it may lead to any file of this user."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _sync_folder(folder: Path) -> None:
    """Sync a folder's entries: created, renamed or removed files. Raises `OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not supported by some network file systems
            raise
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents durably."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for missing_folder in reversed(missing):
        missing_folder.mkdir(exist_ok=True)
        _sync_folder(missing_folder.parent)


def _lock_file(file: Any) -> None:
    """Lock a file until it is closed, so that a failed append can be undone without removing another process's line."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):  # a file system without locks
            raise


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values as JSON Lines, atomically."""
    write_atomic(path, "".join(f"{encode_json(value)}\n" for value in values))


@contextmanager
def open_line_writer(path: Path) -> Iterator[WriteLine]:
    """Yield a function that writes a line into a new file, which is renamed to `path` on success. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")

    def write_line(line: str) -> None:
        file.write(f"{redact(line)}\n")

    try:
        with temporary.open("w", encoding="utf-8", errors="replace") as file:
            yield write_line
            file.flush()
            os.fsync(file.fileno())  # before the rename: a power failure must not leave an empty file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes) of each complete, non-empty line; a truncated last line is skipped.

    A missing file has no lines. A last line that only lacks its line end is complete, since the next append would
    terminate it. Lines are bytes, so that the parser reports invalid UTF-8.
    """
    if not path.exists():
        return
    with open_regular(path) as file:
        for number, raw in enumerate(file, 1):
            if raw.strip() and (raw.endswith(b"\n") or is_json(raw)):
                yield number, raw.rstrip(b"\n")
            if not raw.endswith(b"\n"):
                return  # data appended meanwhile is the rest of this line


def read_valid_lines(path: Path, parse: Callable[[bytes], T]) -> Iterator[T]:
    """Yield the lines of a file as `parse` returns them; those that it refuses, as a crash leaves them, are skipped.

    What is no file has no lines: writing to it will fail with the reason.
    """
    if path.is_file():
        yield from parse_valid((line for _, line in read_lines(path)), parse)


def parse_valid(lines: Iterable[bytes], parse: Callable[[bytes], T]) -> Iterator[T]:
    """Yield what `parse` returns for each line that it does not refuse by a `ValueError`."""
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            yield parse(line)


def is_json(raw: bytes) -> bool:
    """Whether bytes are one JSON value."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yield the values of a JSON Lines file. Raises `StoreError` with file and line."""
    import jsonlines

    with TextIOWrapper(open_regular(path), encoding="utf-8") as file, jsonlines.Reader(file) as reader:
        try:
            yield from reader.iter(skip_empty=True)
        except jsonlines.InvalidLineError as error:
            raise StoreError(
                f"{path}:{error.lineno}: {error.args[0].split(' (line')[0]}", hint="restore the file from a copy"
            ) from error


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises `OSError` for a FIFO or device too, because reading it may block forever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path.open("rb")


def require_regular(path: Path) -> None:
    """Raise `StoreError` for a FIFO, socket, device or folder in the place of a file; a missing file is none."""
    if path.exists() and not path.is_file():
        raise StoreError(f"{path}: it is no regular file", hint=f"move it away: mv {path} {path}.moved")


def is_within(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or lies in it, after resolving symbolic links of both."""
    return path.resolve().is_relative_to(folder.resolve())


@contextmanager
def rebuild_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder beside the final one, which it replaces by renames on success. Raises `StoreError`."""
    building, old = (final.with_name(f".{final.name}.{kind}") for kind in ("new", "old"))
    with disk_errors(building):
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        try:
            yield building
            shutil.rmtree(old, ignore_errors=True)
            if final.exists():
                final.rename(old)
            building.rename(final)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(building, ignore_errors=True)


def replace_link(link: Path, target: Path) -> None:
    """Point a symbolic link to a sibling or descendant folder by one rename; a real folder there is moved aside."""
    if link.is_dir() and not link.is_symlink():
        link.rename(link.with_name(f"{link.name}.before-{datetime.now(UTC):%Y%m%d_%H%M%S}"))
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, link.parent))
    temporary.replace(link)
