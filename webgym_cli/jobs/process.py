"""Child process with a log file; its whole process tree is started and stopped together."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from webgym_cli.errors import JobError
from webgym_cli.jobs import guard
from webgym_cli.util.files import file_size

# Seconds after the grace period before the guard itself is killed.
KILL_MARGIN = 10.0
# Seconds between two looks at the log and the processes of a job.
_LOOK = 1.0
# Maximum size of a log in bytes: an agent, or a server, that prints without end would fill the disk.
MAX_LOG = 1 << 28
# The last line of a Python traceback.
_EXCEPTION = re.compile(r"(?:[A-Za-z_][\w.]*\.)?\w*(?:Error|Exception)(?::|$)")
# What torchrun puts before a line of a process.
_RANK = re.compile(r"^\[rank\d+\]:\s*")
# pydantic puts the cause on the line after this one.
_VALIDATION = re.compile(r"\d+ validation errors? for [^:]+$")


class Job:
    """Running command under a guard. Output goes to `log`; its process tree ends with it and with this process."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, log: Path, grace: float) -> None:
        """Use `Job.spawn` instead."""
        self._process = process
        self._lifeline: int | None = lifeline
        self._grace = grace
        self._family: dict[int, str] = {}
        """Start times of the guard's descendants by process id: what a killed guard leaves running."""
        self._next_look = 0.0
        self.log = log
        """The file that the command writes to."""

    @classmethod
    def spawn(
        cls, argv: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path | None = None, grace: float = 15.0
    ) -> Job:
        """Start a command with exactly the environment `env`. Raises `JobError` if the guard can't be started."""
        log.parent.mkdir(parents=True, exist_ok=True)
        read_end, write_end = os.pipe()
        command = [sys.executable, "-S", "-E", guard.__file__, "run", str(read_end), str(grace), *argv]
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    command,
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(read_end,),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(write_end)
            raise JobError(f"can't start {argv[0]}: {error}") from error
        finally:
            # Only the guard needs the read end.
            os.close(read_end)
        return cls(process, write_end, log, grace)

    @classmethod
    async def run(cls, argv: Sequence[str], *, env: Mapping[str, str], log: Path, grace: float = 15.0) -> int:
        """Run a command to its end and return its exit status. On cancellation, end its process tree first."""
        job = cls.spawn(argv, env=env, log=log, grace=grace)
        try:
            return await job.wait()
        finally:
            await asyncio.shield(job.stop())

    @property
    def pid(self) -> int:
        """Process id of the guard."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the command's exit status, or None while it runs; 128 + n after signal n."""
        code = self._process.poll()
        if code is not None:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None
            return guard.shell_status(code)  # negative: the guard was killed, or had no handlers yet
        # The log and the guard's descendants change slowly.
        if (now := time.monotonic()) >= self._next_look:
            self._next_look = now + _LOOK
            if file_size(self.log) > MAX_LOG:
                _shorten(self.log, MAX_LOG // 256)
            family = {pid: began for pid in guard.descendants(self.pid) if (began := guard.start_time(pid)) is not None}
            if guard.start_time(self.pid) is not None:  # else they may have left it while they were read
                self._family = family
        return None

    async def wait(self, poll_seconds: float = 0.1) -> int:
        """Wait until the command and its descendants have ended; return the exit status."""
        while (code := self.poll()) is None:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(poll_seconds)
        return code

    async def stop(self) -> int:
        """End the process tree (TERM, grace period, KILL) and return the exit status. Idempotent."""
        if self.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(self.wait(), self._grace + KILL_MARGIN)
        except TimeoutError:
            tree = guard.descendants(self.pid)
            guard.signal_all([*tree, self.pid], signal.SIGKILL)
            code = await self.wait()
        if self._family and (self._process.returncode or 0) < 0:
            await asyncio.to_thread(guard.end_processes, self._find_orphans, self._grace)
        return code

    def _find_orphans(self) -> list[int]:
        """Return what a killed guard has left: the noted processes and their descendants, never another's."""
        children = guard.children_by_parent()
        for noted in guard.same_processes(self._family.items()):
            for pid in guard.descendants(noted, children):
                if (began := guard.start_time(pid)) is not None:
                    self._family.setdefault(pid, began)
        return guard.same_processes(self._family.items())


def _shorten(log: Path, kept: int) -> None:
    """Leave only the first and the last `kept` bytes of a log: versions and settings, and what led to a failure."""
    with log.open("r+b") as file, log.open("ab") as end:  # its writers append too
        file.seek(-kept, os.SEEK_END)
        last = file.read()
        file.truncate(kept)
        end.write(b"\n[what stood here is left out: the log was too long]\n" + last)


def last_line(log: Path, default: str = "") -> str:
    """Return the last non-empty line of a log, or the default."""
    return next(iter(last_lines(log, 1)), default)


def last_lines(log: Path, count: int = 5, limit: int = 65536) -> list[str]:
    """Return the last `count` non-empty lines within the last `limit` bytes of a log."""
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - limit))
        lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
    return [line.rstrip() for line in lines if line.strip()][-count:]


def read_failure(log: Path, count: int, limit: int = 65536) -> list[str]:
    """Return the `last_lines` of a failed job's log; on a full disk the last one says so, as the job itself can't."""
    lines, disk = last_lines(log, count, limit), shutil.disk_usage(log.parent)
    if disk.free < 1 << 14 and disk.total:  # some file systems have no sizes
        lines.append(f"OSError: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}: the log is cut off")
    return lines


def find_cause(lines: Sequence[str], echoes: re.Pattern[str] | None = None, own: re.Pattern[str] | None = None) -> str:
    """Return the last line with an exception that is not an echo, else the last line, else an empty text.

    `echoes`: matches a line with which the program reports another process's failure; it doesn't contain the cause.
    `own`: matches a line with which the program itself reports its error.
    """
    lines = [_RANK.sub("", line.strip()) for line in lines]
    for number, line in reversed(tuple(enumerate(lines))):
        is_cause = _EXCEPTION.match(line) and not (echoes and echoes.match(line))
        if is_cause or (own and own.match(line)):
            return ": ".join([line, *lines[number + 1 : number + 2]]) if _VALIDATION.search(line) else line
    return lines[-1] if lines else ""
