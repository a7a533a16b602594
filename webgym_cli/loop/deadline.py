"""`Deadline`: ends a loop before a batch system takes the machine away, so that the requeued job goes on."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from webgym_cli.errors import OutOfTimeError, Terminated, UsageError
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir

# SLURM's variable with the end of a job in seconds since 1970; a requeued job gets a new one.
END_VARIABLE = "SLURM_JOB_END_TIME"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
# The longest stage that is left to another job, as a share of a command's time: it must fit in there.
_MOST = 0.9
# Recorded events whose duration is that of a stage, by stage.
_PARTS = {"evaluation": ("evaluation",), "rollout": ("rollout",), "update": ("prepare", "train")}


@dataclass(slots=True)
class Deadline:
    """The time at which a command must have ended its work."""

    run: RunDir
    at: float
    """In seconds since 1970."""
    clock: Callable[[], float] = time.time
    _whole: float = field(init=False)
    """Seconds from the start of the command to the deadline."""
    _passed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Measure the time of the whole command."""
        self._whole = self.at - self.clock()

    def require_time(self, stage: str) -> None:
        """Raise `OutOfTimeError` unless a stage ends in time if it takes as long as the last ones of its kind.

        One that is longer than a whole command starts nevertheless: it would never start otherwise, and goes on in the
        next job.
        """
        seconds = measure_last(self.run, stage)
        if self.at - self.clock() < seconds <= _MOST * self._whole:
            raise self._error(f"the next {stage} takes about {seconds / 60:.1f} minutes, as the last ones did")

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """End the block at the deadline as SIGTERM ends it, by `OutOfTimeError`: what was finished is stored."""
        timer = threading.Timer(max(0.0, self.at - self.clock()), self._pass)
        timer.daemon = True
        try:
            timer.start()  # within the block: it ends at once if the deadline has passed
            yield
        except Terminated:
            if self._passed.is_set():
                raise self._error("a stage was stopped") from None
            raise
        finally:
            timer.cancel()

    def _pass(self) -> None:
        self._passed.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def _error(self, what: str) -> OutOfTimeError:
        left = max(0.0, self.at - self.clock())
        return OutOfTimeError(
            f"{self.run.root}: {left / 60:.1f} minutes are left before the deadline: {what}",
            hint=f"webgym resume {self.run.root} goes on in another job",
        )


def measure_last(run: RunDir, stage: str) -> float:
    """Return the seconds of the longer one of the last two stages of a kind that the run has recorded; 0 without any.

    Of two, because one that went on in another job is recorded with the seconds of its rest.
    """
    seconds = {name: [0.0] for name in _PARTS[stage]}
    for event in read_events(run, *_PARTS[stage]):
        if event.get("collected") != 0:  # a complete rollout is recorded again by the job that goes on after it
            seconds[event["event"]].append(event.get("seconds") or 0.0)
    return sum(max(of_kind[-2:]) for of_kind in seconds.values())


def find_deadline(run: RunDir, stop_before: str | None, environ: Mapping[str, str]) -> Deadline | None:
    """Return the deadline of `--stop-before` ahead of the end of the SLURM job; None without the option.

    Raises `UsageError` for a time that can't be read, or without the variable.
    """
    if stop_before is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", stop_before)
    if match is None:
        raise UsageError(f"--stop-before {stop_before}: is no time", hint="--stop-before 3m, 90s or 1h")
    end = environ.get(END_VARIABLE, "")
    if not re.fullmatch(r"\d{1,10}", end):  # more digits are no seconds, and longer than a timer can wait
        raise UsageError(
            f"--stop-before: {END_VARIABLE} {'is not set' if not end else f'is {end}, no seconds since 1970'}",
            hint=f"outside of SLURM: export {END_VARIABLE}=$(date -d '+4 hours' +%s)",
        )
    return Deadline(run, int(end) - float(match[1]) * _UNITS[match[2]])
