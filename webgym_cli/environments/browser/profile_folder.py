"""Temporary folder of a browser's profile; removed with the browser, or by a later process if we were killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "webgym-browser-"
_LOCK = "lock"


class ProfileFolder:
    """A temporary folder that is locked while this process lives. Creating one removes the unlocked ones."""

    def __init__(self) -> None:
        _remove_abandoned()
        # Renamed to its final name only once it is locked: another process may be removing unlocked folders.
        hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        self._lock = os.open(hidden / _LOCK, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = hidden.rename(hidden.with_name(hidden.name[1:]))

    def remove(self) -> None:
        """Remove the folder; nothing uses it any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # locked, not ours, or just removed by another process
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
