"""A temporary folder, removed after use, or by a later process if this one was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from webgym_cli.util.files import disk_errors

_PREFIX = "webgym-tmp-"
# Not the name of any file of a run: a user may well put a run into the same folder under such a prefix.
_LOCK = ".in-use"


class TemporaryFolder:
    """A temporary folder that is locked while this process lives. Creating one removes the unlocked ones."""

    def __init__(self, use: str) -> None:
        """`use`: what is in it, as a part of its name. Raises `StoreError`."""
        with disk_errors("folder for temporary files (TMPDIR)"):
            for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
                with suppress(OSError):  # locked, not ours, or just removed by another process
                    lock = os.open(folder / _LOCK, os.O_RDWR)
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(folder, ignore_errors=True)
                    finally:
                        os.close(lock)
            # Renamed to its final name only once it is locked: another process may be removing unlocked folders.
            hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{use}-"))
            self._lock = os.open(hidden / _LOCK, os.O_CREAT | os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.path = hidden.rename(hidden.with_name(hidden.name[1:]))

    def __enter__(self) -> Path:
        """Return its path."""
        return self.path

    def __exit__(self, *exc: object) -> None:
        """Remove it."""
        self.remove()

    def remove(self) -> None:
        """Remove the folder; nothing uses it any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
