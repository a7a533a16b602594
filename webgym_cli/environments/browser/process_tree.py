"""The processes behind one browser: found among our own descendants, and ended by pid, by a reaper if we are killed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field

import psutil

from webgym_cli.jobs import reaper

# Seconds between asking and killing.
_GRACE = 5.0


@dataclass(slots=True)
class ProcessTree:
    """Remembers the driver and everything below it, so that also those that lost their parent can be ended."""

    variable: str = "WEBGYM_BROWSER"
    """The environment variable that the browser carries."""
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Its value: tells this pool's browser from any other below this process."""
    _members: dict[int, psutil.Process] = field(default_factory=dict)
    _reaper: subprocess.Popen[bytes] | None = None

    def scan(self) -> None:
        """Look at our descendants and remember the marked browser, its driver and all of their children."""
        ours = psutil.Process(os.getpid())
        drivers: dict[int, psutil.Process] = {}
        for process in _descendants(ours):
            if process.pid in self._members or self._is_marked(process):
                driver = _child_above(process, ours)
                drivers[driver.pid] = driver
        for driver in drivers.values():
            for member in (driver, *_descendants(driver)):
                self._members[member.pid] = member

    def hand_to_reaper(self) -> None:
        """Let a reaper end the processes known now, should we be killed together with the driver."""
        if self._reaper is None:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        if self._reaper.stdin is not None:
            lines = (f"{pid} {began}\n" for pid in self._members if (began := reaper.start_time(pid)))
            self._reaper.stdin.write("".join(lines).encode())
            self._reaper.stdin.flush()

    def command_lines(self) -> list[list[str]]:
        """Return the arguments of the remembered processes that still run."""
        return [_arguments(process) for process in self._members.values()]

    def alive(self) -> list[int]:
        """Return the pids of the remembered processes that still run."""
        return [pid for pid, process in self._members.items() if _runs(process)]

    def end(self) -> None:
        """Wait until all are gone; ask, then kill those that stay."""
        left = [process for process in self._members.values() if _runs(process)]
        for last_word in ("wait", "terminate", "kill"):
            if last_word != "wait":
                for process in left:
                    _signal(process, last_word)
            _, left = psutil.wait_procs(left, timeout=_GRACE)
            left = [process for process in left if _runs(process)]
            if not left:
                break
        self._members.clear()
        self._dismiss()

    def _dismiss(self) -> None:
        reaper_, self._reaper = self._reaper, None
        if reaper_ is not None:
            reaper_.communicate()

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(self.variable) == self.mark
        except (psutil.Error, OSError):
            return False


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _child_above(process: psutil.Process, top: psutil.Process) -> psutil.Process:
    """Return the direct child of `top` that `process` descends from, or `process` when it lost its parents."""
    try:
        line = [process, *process.parents()]
    except psutil.Error:
        return process
    below = [member for member, parent in itertools.pairwise(line) if parent.pid == top.pid]
    return below[0] if below else process


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(process: psutil.Process, name: str) -> None:
    try:
        getattr(process, name)()
    except psutil.Error:
        return
