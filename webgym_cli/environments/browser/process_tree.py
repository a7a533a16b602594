"""The processes behind one browser: found among our own descendants, and ended by pid, by a reaper if we are killed."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.jobs import guard
from webgym_cli.jobs.process_tree import Reaper

# Seconds between two looks at processes that were asked to end.
_POLL_SECONDS = 0.05
# The environment variable that a browser carries.
VARIABLE = "WEBGYM_BROWSER"


@dataclass(slots=True)
class ProcessTree:
    """Remembers the driver and everything below it, so that also those that lost their parent can be ended."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Value of the variable: tells this pool's browser from any other below this process."""
    _members: dict[int, str] = field(default_factory=dict)
    """Start times by pid."""
    _reaper: Reaper | None = None

    def scan(self) -> None:
        """Look at our descendants and remember the marked browser, its driver and all of their children."""
        children = guard.children_by_parent()
        for driver in children.get(os.getpid(), ()):
            tree = (driver, *guard.descendants(driver, children))
            if any(pid in self._members or self._is_marked(pid) for pid in tree):
                self._members |= {pid: began for pid in tree if (began := guard.start_time(pid))}

    def hand_to_reaper(self) -> None:
        """Let a reaper end the processes known now, should we be killed together with the driver."""
        self._reaper = self._reaper or Reaper()
        self._reaper.add(self._members)

    def alive(self) -> list[int]:
        """Return the pids of the remembered processes that still run."""
        return guard.same_processes(self._members.items())

    def end(self) -> None:
        """Wait until all are gone; ask, then kill those that stay."""
        deadline = time.monotonic() + guard.GRACE
        while self.alive() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        guard.end_processes(self.alive, guard.GRACE)
        self._members.clear()
        reaper, self._reaper = self._reaper, None
        if reaper is not None:
            reaper.dismiss()

    def _is_marked(self, pid: int) -> bool:
        with suppress(OSError):
            return os.fsencode(f"{VARIABLE}={self.mark}") in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False
