"""A reaper for processes that others started: it ends them should we be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from webgym_cli.jobs import guard


class Reaper:
    """The reaper's process. It ends what is named to it and still lives once we are gone, or dismiss it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, "reap"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, pids: Iterable[int]) -> None:
        """Name processes to it."""
        if self._process.stdin is not None:
            lines = (f"{pid} {began}\n" for pid in pids if (began := guard.start_time(pid)))
            self._process.stdin.write("".join(lines).encode())
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Have it end what is left, and wait for that."""
        self._process.communicate()
