"""What a rollout is doing now, as other shells can read it: a file a split, replaced each second. No lock."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
from pydantic import AwareDatetime, Field, ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import StoredRecord
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import list_iterations
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_json, write_json

# Seconds without a word after which a writer counts as gone.
SILENT_AFTER = 15.0
# Seconds that a process's start may seem to move when the clock is set.
_SAME_PROCESS = 60.0

# Held between the look at what a file says and its replacement.
_WRITING = threading.Lock()


class RolloutState(StrEnum):
    """What became of a rollout. A writer knows the first four; `lost` and `silent` is what its readers see."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    """It wrote that it runs, but its process is gone."""
    SILENT = "silent"
    """It wrote that it runs, but has not written for `SILENT_AFTER` seconds."""


class RankStatus(StoredRecord):
    """The status file of one rollout, which its first rank writes."""

    rank: int = Field(ge=0)
    pid: int
    process_started: float
    """Start time of the process in seconds since 1970; distinguishes it from a later process with the same id."""
    host: str
    started_at: AwareDatetime
    """Start of the rollout."""
    updated_at: AwareDatetime
    state: RolloutState
    """The state, as its writer stored it."""
    snapshot: dict[str, Any]

    @property
    def here(self) -> bool:
        """Whether the writer's process can be looked up: it runs, or ran, on this machine."""
        return self.host == socket.gethostname()

    def seen(self, at: datetime | None = None) -> RolloutState:
        """Return the state as a reader sees it at that time (now)."""
        if self.state is not RolloutState.RUNNING:
            return self.state
        if self.here and not is_process_alive(self.pid, self.process_started):
            return RolloutState.LOST
        silence = ((at or datetime.now(UTC)) - self.updated_at).total_seconds()
        return RolloutState.SILENT if silence > SILENT_AFTER else RolloutState.RUNNING

    def may_go_on(self, at: datetime | None = None) -> bool:
        """Return whether more can be expected of it: it runs, or its process lives and is only held up."""
        seen = self.seen(at)
        return seen is RolloutState.RUNNING or (seen is RolloutState.SILENT and self.here)


def write_status(run: RunDir, snapshot: dict[str, Any], state: RolloutState = RolloutState.RUNNING) -> None:
    """Replace the status of a rollout by this snapshot of its monitor. Raises `StoreError`.

    Once a rollout's end is written, a late word of the same process that it runs changes nothing.
    """
    status = RankStatus(
        rank=0,
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        host=socket.gethostname(),
        started_at=datetime.fromisoformat(snapshot["started_at"]),
        updated_at=datetime.now(UTC),
        state=state,
        snapshot=snapshot,
    )
    file = run.status(Split(snapshot["split"]))
    with _WRITING:
        before = _read(file) if state is RolloutState.RUNNING else None
        if before is None or before.state is RolloutState.RUNNING or _rollout(before) != _rollout(status):
            write_json(file, status.model_dump(mode="json", by_alias=True))


def read_status(run: RunDir) -> list[RankStatus]:
    """Return the rollouts that go on: of training episodes, of an evaluation; else the newest alone.

    What can't be read is left out.
    """
    rollouts = [status for split in Split if (status := _read(run.status(split)))]
    going = [status for status in rollouts if status.may_go_on()]
    return going or sorted(rollouts, key=lambda status: status.started_at)[-1:]


def is_process_alive(pid: int, started: float | None = None) -> bool:
    """Return whether this process of this machine lives; `started` tells it from a later one of the same number."""
    try:
        process = psutil.Process(pid)
        same = started is None or abs(process.create_time() - started) < _SAME_PROCESS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False


def read_lock_holder(run: RunDir) -> dict[str, Any] | None:
    """Return who holds the run (`pid`, `host`, `command`, `since`); None where nobody does, as far as can be told."""
    try:
        holder = read_json(run.lock_holder)
        known = {key: holder[key] for key in ("pid", "host", "command", "since")}
    except (StoreError, KeyError, TypeError):
        return None
    dead = known["host"] == socket.gethostname() and not is_process_alive(int(known["pid"]))
    return None if dead else known


@dataclass(slots=True)
class StoredCounts:
    """Counts what is stored, by lines; asked again, it reads only what was added."""

    run: RunDir
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Bytes read of a file, and the lines in them."""

    def rows(self) -> list[dict[str, Any]]:
        """Return `planned` episodes, `stored` trajectories and `judgements` by split and iteration, oldest first."""
        return [self._row(split, iteration) for split in Split for iteration in self._iterations(split)]

    def _iterations(self, split: Split) -> list[int]:
        prefix = f"{split}.iteration_"
        names = (file.stem.removeprefix(prefix) for file in self.run.plan(split, 0).parent.glob(f"{prefix}*.jsonl"))
        planned = {int(name) for name in names if name.isdecimal()}
        return sorted(planned | set(list_iterations(self.run, split)))

    def _row(self, split: Split, iteration: int) -> dict[str, Any]:
        folder = self.run.part(split, iteration).parent
        return {
            "split": split.value,
            "iteration": iteration,
            "planned": self._lines(self.run.plan(split, iteration)),
            "stored": sum(self._lines(file) for file in sorted(folder.glob("part-*.jsonl"))),
            "judgements": sum(self._lines(file) for file in sorted(folder.glob("verdicts-*.jsonl"))),
        }

    def _lines(self, file: Path) -> int:
        offset, lines = self._seen.get(file, (0, 0))
        try:
            with file.open("rb") as opened:
                if opened.seek(0, os.SEEK_END) < offset:
                    offset, lines = 0, 0
                opened.seek(offset)
                while chunk := opened.read(1 << 20):
                    offset, lines = offset + len(chunk), lines + chunk.count(b"\n")
        except OSError:
            return 0
        self._seen[file] = offset, lines
        return lines


def _read(file: Path) -> RankStatus | None:
    try:
        return RankStatus.model_validate(read_json(file))
    except (StoreError, ValidationError):
        return None


def _rollout(status: RankStatus) -> tuple[Any, ...]:
    return status.host, status.pid, status.started_at
