"""Files that contain pickles: torch's zip archives, its legacy format, gzip, or a plain pickle."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.pickled import load
from webgym_cli.util.files import open_regular

# Maximum decompressed size of a gzip file, in bytes.
MAX_UNPACKED = 1 << 29
# Magic number at the beginning of torch's legacy format.
TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_ZIP, _GZIP = b"PK\x03\x04", b"\x1f\x8b"


class _Bounded:
    """A stream with a limit on its size, so that a forged length can't allocate memory."""

    def __init__(self, raw: IO[bytes], left: int) -> None:
        self._raw = raw
        self._left = left

    def read(self, size: int) -> bytes:
        """Return `size` bytes, or those that are left."""
        return self._take(self._raw.read(max(0, min(size, self._left))))

    def readline(self) -> bytes:
        """Return a line, or the bytes that are left."""
        return self._take(self._raw.readline(self._left))

    def _take(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


def read_pickle(path: Path, records: Collection[str] = ()) -> Any:
    """Load the pickled value in a file. `records`: classes whose objects it may hold, which become stubs.

    Raises `PickleRefused`, whose message begins with the file's name.
    """
    try:
        with _open_stream(path) as stream:
            value = load(stream, records, str(path))
            if value == TORCH_MAGIC and isinstance(value, int):
                load(stream, records, str(path))  # the protocol's version
                load(stream, records, str(path))  # the machine that wrote it
                value = load(stream, records, str(path))
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
    """Return the archive's pickle. Torch stores it uncompressed, so a compressed one may be a zip bomb."""
    entries = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
    if len(entries) != 1:
        raise PickleRefused(f"{path}: an archive with {len(entries)} data.pkl: torch's have one")
    if entries[0].compress_type != zipfile.ZIP_STORED:
        raise PickleRefused(f"{path}: its data.pkl is packed, which torch never does")
    return entries[0]
