"""Removes stale locks of killed torch extension builds; every later build would wait for them forever."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

# Below the cache torch has a folder for each version and device, below the variable's folder it has none.
_VARIABLE = "TORCH_EXTENSIONS_DIR"
_LOCKS = ("*/lock", "*/*/lock")


def remove_stale_locks(env: Mapping[str, str]) -> list[Path]:
    """Remove our user's locks that no process of this machine holds open, and return them; `env`: the trainer's.

    A build keeps its lock open until it ends (torch's `FileBaton`), so a lock that no process has open is stale.
    """
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - there may be no home
    cache = Path(env.get("XDG_CACHE_HOME") or f"{home}/.cache")
    root = Path(env.get(_VARIABLE) or cache / "torch_extensions")
    locks = {path: path.stat().st_ino for pattern in _LOCKS for path in root.glob(pattern) if _is_ours(path)}
    held = _list_open_files() if locks else frozenset()
    stale = [path for path in locks if str(path.resolve()) not in held]
    for path in stale:
        with suppress(FileNotFoundError):
            if path.stat().st_ino == locks[path]:
                path.unlink()
    return stale


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.stat().st_uid == os.getuid()


def _list_open_files() -> frozenset[str]:
    """Return the files that our user's processes have open."""
    return frozenset(
        file.path for process in psutil.process_iter(["open_files"]) for file in process.info["open_files"] or ()
    )
