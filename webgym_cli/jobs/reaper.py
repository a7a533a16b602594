"""Ends processes once the one that named them is gone, however it died.

    python -I -S reaper.py      standard input: a line `<pid> <start time>` for each process, then the end of file

It reads until its input closes, which happens at the latest when the writer is killed. Then each named process that is
still the same one gets TERM, with all that it started, and KILL five seconds later. Imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

# Seconds between TERM and KILL.
GRACE = 5.0


def start_time(pid: int) -> str | None:
    """Return when a process began, in clock ticks since boot; None when it is gone or a zombie."""
    # The process can end while its entry is read.
    with contextlib.suppress(OSError, IndexError):
        fields = (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
        # Counted after the command's name, which may contain spaces and parentheses.
        return None if fields[0] == "Z" else fields[19]
    return None


def end(named: list[tuple[int, str]]) -> None:
    """End what is still the same process: TERM, the grace period, KILL."""
    deadline = time.monotonic() + GRACE
    number = signal.SIGTERM
    while left := [pid for pid, began in named if start_time(pid) == began]:
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        for pid in left:
            # It may have ended since its start time was compared.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        time.sleep(0.1)


def main() -> None:
    """Read until the input ends, then end what it named."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    named = []
    for line in sys.stdin:
        pid, began = line.split()
        named.append((int(pid), began))
    end(named)


if __name__ == "__main__":
    main()
