"""Ends processes so that nothing outlives the process that asked for it, `kill -9` included.

    python -S -E guard.py run <lifeline fd> <grace seconds> <command ...>

The guard of one command is a subreaper: whatever the command starts, in whichever session or process group, stays its
descendant. It watches a pipe whose other end only the asking process holds. When that end closes, however the asker
died, or when the guard gets TERM, it sends TERM to all descendants, waits for the grace period, sends KILL and reaps.
The same clean-up runs after a normal end.

    python -I -S guard.py reap      standard input: a line `<pid> <start time>` for each process, then the end of file

The reaper of processes that others started reads until its input closes, which happens at the latest when the writer is
killed. Then it ends those that are still the same. Imports only the standard library: it starts in some 30 ms.
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
from collections.abc import Callable, Iterable
from pathlib import Path

# Options of prctl(2), which the standard library does not name.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Seconds between TERM and KILL for processes that others started.
GRACE = 5.0
# Seconds between two checks of the child.
POLL_SECONDS = 0.1


def read_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none for a process that is gone, or a zombie."""
    # The process can end while its entry is read.
    with contextlib.suppress(OSError, IndexError):
        # Counted after the command's name, which may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        return [] if fields[0] == "Z" else fields
    return []


def start_time(pid: int) -> str | None:
    """Return when a process began, in clock ticks since boot; None when it is gone or a zombie."""
    fields = read_stat(pid)
    return fields[19] if fields else None


def children_by_parent() -> dict[int, list[int]]:
    """Return the living processes of this machine by their parent."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := read_stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    return children


def descendants(root: int, children: dict[int, list[int]] | None = None) -> list[int]:
    """Return the living descendants of a process, zombies left out, parents before their children."""
    children = children_by_parent() if children is None else children
    family, queue = [], [root]
    while queue:
        below = children.get(queue.pop(0), [])
        family += below
        queue += below
    return family


def end_processes(find: Callable[[], list[int]], grace: float) -> None:
    """End what `find` returns: TERM, the grace period, KILL, until there is nothing left."""
    signal_all(find(), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while left := find():
        if time.monotonic() >= deadline:
            signal_all(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that still lives."""
    for pid in pids:
        # It may have ended meanwhile, or run as another user (setuid).
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def sweep(grace: float) -> None:
    """End all descendants, and collect those that have ended."""

    def find() -> list[int]:
        # waitpid raises it once no child is left.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return descendants(os.getpid())

    end_processes(find, grace)


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


def run(lifeline: int, grace: float, command: list[str]) -> int:
    """Run a command as its guard; return its exit status."""
    os.set_inheritable(lifeline, False)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = watch(command, lifeline, grace)
    return 128 - code if code < 0 else code


def same_processes(named: Iterable[tuple[int, str]]) -> list[int]:
    """Return the ids, among those with a start time, that still stand for the same process."""
    return [pid for pid, began in named if start_time(pid) == began]


def reap() -> int:
    """Read until the input ends, then end what it named."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    named = [(int(pid), began) for pid, began in map(str.split, sys.stdin)]
    end_processes(lambda: same_processes(named), GRACE)
    return 0


def main(mode: str, *arguments: str) -> int:
    """Parse the command line and run."""
    return reap() if mode == "reap" else run(int(arguments[0]), float(arguments[1]), list(arguments[2:]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
