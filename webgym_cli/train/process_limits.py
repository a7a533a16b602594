"""Limits of the processes of a training: the trainer, and what prepares its start, its data and its weights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from webgym_cli.config.train import TrainSettings
from webgym_cli.errors import JobError
from webgym_cli.jobs.process import Job

# Time between SIGTERM and SIGKILL of a process, in seconds.
STOP_GRACE = 30.0
# Seconds between two polls of a process, and between two looks at its files.
POLL_SECONDS = 0.2
LOOK_SECONDS = 10.0
# A pause is reported after this many seconds, and this many times the longest pause so far; the trainer is ended after
# twice that at the earliest. The longest pause is used because saving or evaluating a large model takes minutes.
REPORTED_PAUSE, STALL_FACTOR = 120.0, 5.0
_MORE = "-s train.{}=… gives it more; a training goes on from its last checkpoint"


@dataclass(slots=True)
class StallDetector:
    """Time without progress of a process, which shows in its log and in the files of its folder."""

    folder: Path
    log: Path
    """The process's output."""
    limit: float
    """Seconds without progress after which the process counts as hanging."""
    name: str = "the trainer"
    """The process in messages."""
    others: Sequence[Path] = ()
    """Logs of others that it waits for."""
    clock: Callable[[], float] = time.monotonic
    _sizes: tuple[int, ...] = ()
    _since: float | None = None
    _longest: float = 0.0
    """Longest pause so far, in seconds."""
    _reported: bool = False
    _next_look: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the files were last measured `LOOK_SECONDS` ago."""
        return self.clock() >= self._next_look

    def observe(self) -> str:
        """Return a message once a pause is unusually long, else an empty one. Raises `JobError` at the limit."""
        now, sizes = self.clock(), tuple(self._measure())
        self._next_look = now + LOOK_SECONDS
        if self._since is None or sizes != self._sizes:
            if self._since is not None:
                self._longest = max(self._longest, now - self._since)
            self._sizes, self._since, self._reported = sizes, now, False
        pause, usual = now - self._since, STALL_FACTOR * self._longest
        if pause > max(self.limit, 2 * usual):
            raise JobError(
                f"{self.name} has made no progress for {pause / 60:.0f} minutes and was stopped; log: {self.log}",
                hint=_MORE.format("stall_minutes"),
            )
        if self._reported or pause <= max(min(REPORTED_PAUSE, self.limit / 2), usual):
            return ""
        self._reported = True
        before = f"at most {self._longest:.0f} s before" if self._longest else "since its start"
        return f"{self.name} has made no progress for {pause:.0f} s ({before}); log: {self.log}"

    def _measure(self) -> Iterator[int]:
        for path in (self.log, *self.others, *sorted(self.folder.rglob("*"))):
            try:
                yield path.stat().st_size
            except OSError:  # the process has removed it
                continue


async def _ignore(message: str) -> None:
    """Do nothing with a message of the detector."""


async def wait_within(
    limits: TrainSettings,
    job: Job,
    name: str,
    folder: Path,
    on_poll: Callable[[], None] = lambda: None,
    on_look: Callable[[str], Awaitable[None]] = _ignore,
) -> int:
    """Wait for a process that works in a folder, and return its exit status; its whole tree has ended then.

    `name`: the process in messages. `on_look` is awaited with each message of the `StallDetector`. Raises `JobError` at
    `train.time_limit_minutes` and `train.stall_minutes`.
    """
    stall = StallDetector(folder, job.log, limits.stall_minutes * 60, name)
    deadline = time.monotonic() + limits.time_limit_minutes * 60
    try:
        while (code := job.poll()) is None:
            if time.monotonic() >= deadline:
                raise JobError(
                    f"{name} passed its time limit of {limits.time_limit_minutes:g} minutes and was stopped; log: "
                    f"{job.log}",
                    hint=_MORE.format("time_limit_minutes"),
                )
            on_poll()
            if stall.is_due:
                await on_look(stall.observe())
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await asyncio.shield(job.stop())
    return code


async def run_within(
    limits: TrainSettings, argv: Sequence[str], name: str, *, env: Mapping[str, str], log: Path, folder: Path
) -> int:
    """Run a process in a folder and return its exit status. Raises `JobError` as `wait_within`."""
    job = Job.spawn(argv, env=env, log=log, cwd=folder, grace=STOP_GRACE)
    return await wait_within(limits, job, name, folder)
