"""Process tree of one browser: found among our descendants, terminated by pid, by a reaper if we are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.jobs import guard

# Poll interval for terminating processes, in seconds.
_POLL_SECONDS = 0.05
# The environment variable that a browser carries.
VARIABLE = "WEBGYM_BROWSER"


@dataclass(slots=True)
class ProcessTree:
    """The driver and its descendants, recorded so that orphaned ones can be ended as well."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Value of the variable; distinguishes this pool's browser from other descendants of this process."""
    _members: dict[int, str] = field(default_factory=dict)
    """Start times by pid."""
    _reaper: subprocess.Popen[bytes] | None = None
    """Ends the registered processes when this process dies, or at the end of its input."""

    def scan(self) -> None:
        """Scan our descendants and record the marked browser, its driver and all of their children."""
        children = guard.children_by_parent()
        for driver in children.get(os.getpid(), ()):
            tree = (driver, *guard.descendants(driver, children))
            if any(pid in self._members or self._is_marked(pid) for pid in tree):
                self._members |= {pid: began for pid in tree if (began := guard.start_time(pid))}

    def hand_to_reaper(self) -> None:
        """Register the recorded processes with a reaper, which ends them if we are killed together with the driver."""
        command, silent = [sys.executable, "-I", "-S", guard.__file__, "reap"], subprocess.DEVNULL
        self._reaper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, start_new_session=True
        )
        if self._reaper.stdin is not None:
            self._reaper.stdin.write("".join(f"{pid} {began}\n" for pid, began in self._members.items()).encode())
            self._reaper.stdin.flush()

    def alive(self) -> list[int]:
        """Return the pids of the recorded processes that are still running."""
        return guard.same_processes(self._members.items())

    def end(self) -> None:
        """Wait for the processes to exit; terminate, then kill those that remain."""
        deadline = time.monotonic() + guard.GRACE
        while self.alive() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        guard.end_processes(self.alive, guard.GRACE)
        self._members.clear()
        reaper, self._reaper = self._reaper, None
        if reaper is not None:
            reaper.communicate()  # it ends what remains

    def _is_marked(self, pid: int) -> bool:
        with suppress(OSError):
            return os.fsencode(f"{VARIABLE}={self.mark}") in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False
