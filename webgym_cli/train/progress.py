"""Reads the trainer's `trainer_log.jsonl` while it grows, and turns its lines into events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from webgym_cli.errors import JobError
from webgym_cli.records.base import is_finite
from webgym_cli.records.events import TrainerStep
from webgym_cli.records.training_files import TRAINER_LOG as TRAINER_LOG
from webgym_cli.util.files import file_size

# A pause is reported after this many seconds, and this many times the longest pause so far; the trainer is ended after
# twice that at the earliest. The longest pause is used because saving or evaluating a large model takes minutes.
REPORTED_PAUSE, STALL_FACTOR = 120.0, 5.0
# Minimum seconds of training before an ETA is reported.
SHORTEST_MEASURE = 1.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the trainer's log."""

    step: int
    """Optimizer steps made."""
    total: int
    """Optimizer steps of the whole training."""
    loss: float | None = None
    """The training loss since the last line; None in evaluation lines and in the last line."""
    eval_loss: float | None = None
    """The validation loss, in evaluation lines."""
    learning_rate: float | None = None
    """The learning rate that this step used."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of webgym's own trainer, named `part/metric`."""


def parse_line(text: str) -> LogLine | None:
    """Return a line's facts, or None for a damaged line."""
    try:
        value = json.loads(text)
        return LogLine(
            step=int(value["current_steps"]),
            total=int(value["total_steps"]),
            loss=_number(value.get("loss")),
            eval_loss=_number(value.get("eval_loss")),
            learning_rate=_number(value.get("lr")),
            metrics={name: number for name in value if "/" in name and (number := _number(value[name])) is not None},
        )
    # The trainer may be writing the line: it is read again when complete.
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_log(path: Path) -> list[LogLine]:
    """Return the lines of a log, the newest of each step and kind, in order; damaged ones are left out."""
    if not path.is_file():
        return []
    lines = (parse_line(text) for text in path.read_text(encoding="utf-8", errors="replace").splitlines())
    newest = {(line.step, line.loss is None, line.eval_loss is None): line for line in lines if line}
    return sorted(newest.values(), key=lambda line: line.step)


def mean_loss(lines: list[LogLine]) -> float | None:
    """Return the mean of the logged training losses, or None when none was logged."""
    losses = [line.loss for line in lines if line.loss is not None]
    return sum(losses) / len(losses) if losses else None


@dataclass(slots=True)
class TrainerLogTail:
    """Reads new log lines at each call; an incomplete last line is read once it is complete."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _offset: int = 0
    _first: tuple[int, float] | None = None
    _last: int = -1

    def new_events(self) -> list[TrainerStep]:
        """Return an event for each new line; the closing line, without figures, only where its step is new."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        events = []
        for line in filter(None, map(parse_line, whole.decode(errors="replace").splitlines())):
            if line.step != self._last or line.loss is not None or line.eval_loss is not None:
                events.append(self._event(line))
            self._last = line.step
        return events

    def skip(self) -> None:
        """Skip the existing lines."""
        self._offset = file_size(self.path)

    def _event(self, line: LogLine) -> TrainerStep:
        event, words = TrainerStep(event="train", done=line.step, total=line.total), []
        if line.loss is not None:
            event["loss"] = line.loss
            words.append(f"loss {line.loss:.4g}")
        if line.eval_loss is not None:
            event["eval_loss"] = line.eval_loss
            words.append(f"eval loss {line.eval_loss:.4g}")
        if line.learning_rate is not None:
            event["learning_rate"] = line.learning_rate
            words.append(f"lr {line.learning_rate:.3g}")
        # The trainer's own estimate of the remaining time is too low after a resumed training.
        now = self.clock()
        step, since = self._first = self._first or (line.step, now)
        if line.step > step and now - since >= SHORTEST_MEASURE:
            event["eta"] = round((now - since) / (line.step - step) * max(0, line.total - line.step), 1)
            words.append(f"ETA {timedelta(seconds=round(event['eta']))}")
        event["facts"] = "  ".join(words)
        return event


@dataclass(slots=True)
class StallDetector:
    """Time without progress of a trainer, which shows in its logs and in the files of its folder."""

    folder: Path
    log: Path
    """The trainer's output."""
    limit: float
    """Seconds without progress after which the trainer counts as hanging."""
    clock: Callable[[], float] = time.monotonic
    _sizes: tuple[int, ...] = ()
    _since: float | None = None
    _longest: float = 0.0
    """Longest pause so far, in seconds."""
    _reported: bool = False

    def observe(self) -> str:
        """Return a message once a pause is unusually long, else an empty one. Raises `JobError` at the limit."""
        now, sizes = self.clock(), tuple(self._measure())
        if self._since is None or sizes != self._sizes:
            if self._since is not None:
                self._longest = max(self._longest, now - self._since)
            self._sizes, self._since, self._reported = sizes, now, False
        pause, usual = now - self._since, STALL_FACTOR * self._longest
        if pause > max(self.limit, 2 * usual):
            raise JobError(
                f"the trainer has made no progress for {pause / 60:.0f} minutes and was stopped; log: {self.log}",
                hint="the same command goes on from its last checkpoint; -s train.stall_minutes=… gives it more",
            )
        if self._reported or pause <= max(min(REPORTED_PAUSE, self.limit / 2), usual):
            return ""
        self._reported = True
        before = f"at most {self._longest:.0f} s before" if self._longest else "since its start"
        return f"the trainer has made no progress for {pause:.0f} s ({before}); log: {self.log}"

    def _measure(self) -> Iterator[int]:
        """Yield the sizes of the trainer's files."""
        for path in (self.log, *sorted(self.folder.rglob("*"))):
            try:
                yield path.stat().st_size
            except OSError:  # the trainer has removed it
                continue


def _number(value: Any) -> float | None:
    """Return a finite number, else None: NaN is not valid JSON."""
    return float(value) if is_finite(value) else None
