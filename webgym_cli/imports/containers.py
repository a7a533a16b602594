"""The files that hold pickles: torch's archives, its old form, gzip, or a pickle alone."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from webgym_cli.imports.pickle_stubs import AllowedNames, PickleRefused
from webgym_cli.imports.pickled import load
from webgym_cli.util.files import open_regular

# Bytes that a gzip file may have unpacked.
MAX_UNPACKED = 1 << 29
# The number with which torch's files began before they were archives.
TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_ZIP, _GZIP = b"PK\x03\x04", b"\x1f\x8b"


class _Bounded:
    """A stream that is never asked for more than is left: a forged length allocates nothing."""

    def __init__(self, raw: IO[bytes], left: int) -> None:
        self._raw = raw
        self._left = left

    def read(self, size: int) -> bytes:
        """Return so many bytes, or what is left."""
        return self._take(self._raw.read(max(0, min(size, self._left))))

    def readline(self) -> bytes:
        """Return a line, or what is left."""
        return self._take(self._raw.readline(self._left))

    def _take(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


def read_pickle(path: Path, known: AllowedNames) -> Any:
    """Return the value that a file holds. Raises `PickleRefused` that begins with the file's name."""
    try:
        with _open_stream(path) as stream:
            value = load(stream, known, str(path))
            if value == TORCH_MAGIC and isinstance(value, int):
                load(stream, known, str(path))  # the protocol's version
                load(stream, known, str(path))  # the machine that wrote it
                value = load(stream, known, str(path))
            return value
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise PickleRefused(f"{path}: can't be read: {error}") from None


@contextmanager
def _open_stream(path: Path) -> Iterator[IO[bytes]]:
    with open_regular(path) as raw:
        start = raw.read(4)
        raw.seek(0)
        if start == _ZIP:
            with zipfile.ZipFile(raw) as archive, archive.open(_find_entry(archive, path)) as entry:
                yield _limit(entry, archive.getinfo(entry.name).file_size)
        elif start.startswith(_GZIP):
            with gzip.open(raw) as unpacked:
                yield _limit(cast(IO[bytes], unpacked), MAX_UNPACKED)
        else:
            yield _limit(raw, path.stat().st_size)


def _limit(raw: IO[bytes], size: int) -> IO[bytes]:
    return cast(IO[bytes], _Bounded(raw, size))


def _find_entry(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """Return the archive's pickle. Torch does not pack it, so that a packed one is a bomb."""
    entries = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
    if len(entries) != 1:
        raise PickleRefused(f"{path}: an archive with {len(entries)} data.pkl: torch's have one")
    if entries[0].compress_type != zipfile.ZIP_STORED:
        raise PickleRefused(f"{path}: its data.pkl is packed, which torch never does")
    return entries[0]
