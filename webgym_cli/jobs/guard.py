"""Process guard: ends child processes when the owner dies, even by `kill -9`.

    python -S -E guard.py run <lifeline fd> <grace seconds> <command ...>

The guard of one command is a subreaper: every process that the command starts, in any session or process group, stays
its descendant. It watches a pipe whose other end only the owner holds. When that end closes (the owner died) or the
guard gets TERM, it sends TERM to all descendants, waits for the grace period, sends KILL and reaps. The same clean-up
runs after a normal end.

    python -I -S guard.py reap      standard input: a line `<pid> <start time>` for each process, then the end of file

The reaper, for processes started by third parties, reads until its input closes, at the latest when the writer dies.
Then it ends the listed processes whose start time still matches. Imports only the standard library: starts in 30 ms.
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

# Options of prctl(2), which the standard library does not define.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Seconds between TERM and KILL in the reaper.
GRACE = 5.0
# Seconds between two checks of the child.
POLL_SECONDS = 0.1


def read_stat(pid: int, *, zombies: bool = False) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty for a process that is gone, and for a zombie."""
    # The process can end while its entry is read.
    with contextlib.suppress(OSError, IndexError):
        # Split after the command name, which may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        return [] if fields[0] == "Z" and not zombies else fields
    return []


def start_time(pid: int) -> str | None:
    """Return a process's start time in clock ticks since boot; None if it is gone or a zombie."""
    fields = read_stat(pid)
    return fields[19] if fields else None


def children_by_parent(*, zombies: bool = False) -> dict[int, list[int]]:
    """Return the ids of this machine's living processes by parent id. `zombies`: those that wait for a parent, too."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := read_stat(int(entry.name), zombies=zombies)):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    return children


def descendants(root: int, children: dict[int, list[int]] | None = None) -> list[int]:
    """Return the living descendants of a process without zombies, parents before children."""
    if children is None:
        children = children_by_parent()
    family, queue = [], [root]
    while queue:
        below = children.get(queue.pop(0), [])
        family += below
        queue += below
    return family


def end_processes(find: Callable[[], list[int]], grace: float) -> None:
    """End the processes that `find` returns: TERM, then KILL after the grace period, until none is left."""
    signal_all(find(), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while left := find():
        if time.monotonic() >= deadline:
            signal_all(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that still lives."""
    for pid in pids:
        # It may have ended in the meantime, or run as another user (setuid).
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def sweep(grace: float) -> None:
    """End all descendants and reap them."""

    def find() -> list[int]:
        # waitpid raises it once no child is left.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return descendants(os.getpid())

    end_processes(find, grace)


def prepare_child() -> None:
    """Set up the command's process before exec: TERM if the guard dies, and the default SIGINT handler."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def watch(command: list[str], lifeline: int, grace: float) -> int:
    """Run the command until it ends, the lifeline closes or TERM arrives; return its exit status."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole foreground group; the owner decides
    try:
        child = subprocess.Popen(command, start_new_session=True, preexec_fn=prepare_child)
    except OSError as error:
        sys.stderr.write(f"can't start {command[0]}: {error}\n")
        # The exit status of a shell for a command that cannot be started.
        return 127
    waiting = select.poll()  # select.select takes no number above 1,023
    waiting.register(lifeline, select.POLLIN)
    while not stop and child.poll() is None:
        if waiting.poll(POLL_SECONDS * 1000) and not os.read(lifeline, 1):
            break
    if child.poll() is None:
        deadline = time.monotonic() + grace
        signal_all(descendants(os.getpid()), signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)  # wait for it separately: the sweep discards exit statuses
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
    return shell_status(watch(command, lifeline, grace))


def shell_status(code: int) -> int:
    """Return an exit status as a shell does: 128 + n after signal n."""
    return 128 - code if code < 0 else code


def same_processes(named: Iterable[tuple[int, str]]) -> list[int]:
    """Return the ids whose process still has the given start time, and so is the same process."""
    return [pid for pid, began in named if start_time(pid) == began]


def reap() -> int:
    """Read process ids from standard input until it closes, then end these processes."""
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
