"""Live status of rollouts for other processes: one file per split, replaced every second, without a lock."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import StoredRecord
from webgym_cli.records.groups import Split
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_json, require_regular, write_atomic
from webgym_cli.util.strict_json import encode_json

# Seconds without an update after which a writer counts as silent.
SILENT_AFTER = 15.0
# Tolerance in seconds for a process's start time, which moves when the clock is set.
_SAME_PROCESS = 60.0


class RolloutState(StrEnum):
    """State of a rollout. Writers store the first four; readers derive `lost` and `silent`."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    """Stored as running, but the process has ended."""
    SILENT = "silent"
    """Stored as running, but not updated for `SILENT_AFTER` seconds."""


class RankStatus(StoredRecord):
    """Status file of one rollout."""

    pid: int
    process_started: float
    """Start time of the process in seconds since 1970; distinguishes it from a later process with the same id."""
    host: str
    started_at: AwareDatetime
    """Start of the rollout."""
    updated_at: AwareDatetime
    state: RolloutState
    """State as stored by the writer."""
    snapshot: dict[str, Any]

    @property
    def here(self) -> bool:
        """Whether the writer's process runs, or ran, on this machine and can be checked."""
        return self.host == socket.gethostname()

    def seen(self, at: datetime | None = None) -> RolloutState:
        """Return the state as derived by a reader at the given time (default: now)."""
        if self.state is not RolloutState.RUNNING:
            return self.state
        if self.here and not is_process_alive(self.pid, self.process_started):
            return RolloutState.LOST
        silence = ((at or datetime.now(UTC)) - self.updated_at).total_seconds()
        return RolloutState.SILENT if silence > SILENT_AFTER else RolloutState.RUNNING

    def may_go_on(self, at: datetime | None = None) -> bool:
        """Whether the rollout may still continue: it runs, or its process is alive but delayed."""
        seen = self.seen(at)
        return seen is RolloutState.RUNNING or (seen is RolloutState.SILENT and self.here)


def write_status(run: RunDir, snapshot: dict[str, Any], state: RolloutState = RolloutState.RUNNING) -> None:
    """Replace a rollout's status with this snapshot of its monitor. Raises `StoreError`."""
    import psutil

    status = RankStatus(
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        host=socket.gethostname(),
        started_at=datetime.fromisoformat(snapshot["started_at"]),
        updated_at=datetime.now(UTC),
        state=state,
        snapshot=snapshot,
    )
    # Not indented: every second, Python's encoder would take ten times as long.
    written = encode_json(status.model_dump(mode="json", by_alias=True))
    write_atomic(run.status(Split(snapshot["split"])), written + "\n")


def read_status(run: RunDir) -> list[RankStatus]:
    """Return the running rollouts (training, evaluation); if there are none, the newest one.

    Unreadable files are ignored.
    """
    rollouts = [status for split in Split if (status := _read(run.status(split)))]
    going = [status for status in rollouts if status.may_go_on()]
    return going or sorted(rollouts, key=lambda status: status.started_at)[-1:]


def is_process_alive(pid: int, started: float | None = None) -> bool:
    """Whether a process of this machine is alive; `started` distinguishes it from a later one with the same pid."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = started is None or abs(process.create_time() - started) < _SAME_PROCESS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False


def read_lock_holder(run: RunDir) -> dict[str, Any] | None:
    """Return the lock's holder (`pid`, `host`, `command`, `since`); None if there is none, as far as known."""
    try:
        holder = read_json(run.lock_holder)
        known = {key: holder[key] for key in ("pid", "host", "command", "since")}
    except (StoreError, KeyError, TypeError):
        return None
    dead = known["host"] == socket.gethostname() and not is_process_alive(int(known["pid"]))
    return None if dead else known


@dataclass(slots=True)
class StoredCounts:
    """Counts stored records by lines; later calls read only what was appended."""

    run: RunDir
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Bytes read and lines counted, by file."""

    def rows(self) -> list[dict[str, Any]]:
        """Return `planned` episodes, `stored` trajectories and `judgements` by split and iteration, oldest first."""
        return [self._row(split, iteration) for split in Split for iteration in self._iterations(split)]

    def _iterations(self, split: Split) -> list[int]:
        plans = self.run.plan(split, 0).parent.glob(f"{split}.iteration_*.jsonl")
        planned = {int(number) for file in plans if (number := file.stem.rpartition("_")[2]).isdecimal()}
        return sorted(planned.union(self.run.list_iterations(split)))

    def _row(self, split: Split, iteration: int) -> dict[str, Any]:
        folder = self.run.part(split, iteration).parent
        return {
            "split": split.value,
            "iteration": iteration,
            "planned": self._lines(self.run.plan(split, iteration)),
            "stored": sum(map(self._lines, folder.glob("part-*.jsonl"))),
            "judgements": sum(map(self._lines, folder.glob("verdicts-*.jsonl"))),
        }

    def _lines(self, file: Path) -> int:
        offset, lines = self._seen.get(file, (0, 0))
        require_regular(file)
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
