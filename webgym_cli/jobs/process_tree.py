"""Reaper for processes started by third parties: ends them if this process is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from webgym_cli.jobs import guard


class Reaper:
    """Reaper process. It ends the registered processes when this process dies or calls `dismiss`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, "reap"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, pids: Iterable[int]) -> None:
        """Register processes."""
        if self._process.stdin is not None:
            lines = (f"{pid} {began}\n" for pid in pids if (began := guard.start_time(pid)))
            self._process.stdin.write("".join(lines).encode())
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Make the reaper end the remaining processes, and wait for it."""
        self._process.communicate()
