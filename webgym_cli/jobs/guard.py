"""Runs one command so that nothing of it outlives the process that asked for it, `kill -9` included.

    python -S -E guard.py <lifeline fd> <grace seconds> <command ...>

The guard is a subreaper: whatever the command starts, in whichever session or process group, stays its descendant.
It watches a pipe whose other end only the asking process holds. When that end closes, however the asker died, or when
the guard gets TERM, it sends TERM to all descendants, waits for the grace period, sends KILL and reaps. The same
clean-up runs after a normal end. Imports only the standard library: it starts in some 30 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

# Options of prctl(2), which the standard library does not name.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Seconds between two checks of the child.
POLL_SECONDS = 0.1


def descendants(root: int) -> list[int]:
    """Return the living descendants of a process, zombies left out, parents before their children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # A process can end between the listing of /proc and the reading of its entry.
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        for pid in children.get(queue.pop(0), []):
            found.append(pid)
            queue.append(pid)
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that still lives."""
    for pid in pids:
        # It may have ended meanwhile, or run as another user (setuid).
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> None:
    """Collect every child that has ended."""
    # waitpid raises it once no child is left.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def sweep(grace: float) -> None:
    """End all descendants: TERM, the grace period, KILL."""
    signal_all(descendants(os.getpid()), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while descendants(os.getpid()) and time.monotonic() < deadline:
        reap()
        time.sleep(POLL_SECONDS)
    while left := descendants(os.getpid()):
        signal_all(left, signal.SIGKILL)
        reap()
        time.sleep(POLL_SECONDS)
    reap()


def prepare_child() -> None:
    """Run in the command's process before it starts: TERM comes should the guard be killed; SIGINT counts again."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def watch(command: list[str], lifeline: int, grace: float) -> int:
    """Run the command until it ends, the lifeline closes or TERM comes; return its exit status."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole foreground group; the asker decides
    try:
        child = subprocess.Popen(command, start_new_session=True, preexec_fn=prepare_child)
    except OSError as error:
        sys.stderr.write(f"can't start {command[0]}: {error}\n")
        # The exit status of a shell for a command that cannot be started.
        return 127
    while not stop and child.poll() is None:
        ready, _, _ = select.select([lifeline], [], [], POLL_SECONDS)
        if ready and not os.read(lifeline, 1):
            break
    if child.poll() is None:
        deadline = time.monotonic() + grace
        signal_all(descendants(os.getpid()), signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)  # waited for by itself: the sweep reaps without telling whose status it was
        if child.poll() is None:
            child.kill()
        child.wait()
        sweep(max(0.0, deadline - time.monotonic()))
    else:
        sweep(grace)
    return child.returncode


def main() -> int:
    """Parse the command line and run."""
    lifeline, grace, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(lifeline, False)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = watch(command, lifeline, grace)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
