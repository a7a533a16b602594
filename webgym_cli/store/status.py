"""What works on a run: the live status of its rollouts, its running command, and its lock.

The status is one file per split, replaced every second, without a lock. The command is noted at its start and removed
at its end, for `resume`. One writer per run holds the lock; readers need none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, ValidationError

from webgym_cli.errors import RunLockedError, StoreError, Terminated
from webgym_cli.records.base import Record, StoredRecord
from webgym_cli.records.groups import Split
from webgym_cli.store.run import RunDir, now, refuse_invalid
from webgym_cli.util.files import read_json, require_regular, write_atomic, write_json
from webgym_cli.util.json_values import encode_json
from webgym_cli.util.optional import when

# Seconds without an update after which a writer counts as silent.
SILENT_AFTER = 15.0
# Tolerance in seconds for a process's start time, which moves when the clock is set.
_SAME_PROCESS = 60.0
# Bytes of which lines are counted at a time.
_BLOCK = 1 << 20
# An NFS share without its lock service. (Where flock is not implemented at all, filelock takes a file's existence.)
_HINTS = {errno.ENOLCK: "mount it with locks, or put the run on another file system"}


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

    def describe(self) -> dict[str, Any]:
        """Return the snapshot with the state as derived now, and the process."""
        ended = when(not self.may_go_on(), {"running": 0, "episodes": []})
        process = self.model_dump(mode="json", include={"host", "pid", "updated_at"})
        return {"state": self.seen().value, **process, **self.snapshot, **ended}


def write_status(run: RunDir, snapshot: dict[str, Any], state: RolloutState = RolloutState.RUNNING) -> None:
    """Replace a rollout's status with this snapshot of its monitor. Raises `StoreError`."""
    import psutil

    status = RankStatus(
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        host=socket.gethostname(),
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
    return going or sorted(rollouts, key=lambda status: str(status.snapshot["started_at"]))[-1:]


def is_process_alive(pid: int, started: float | None = None) -> bool:
    """Whether a process of this machine is alive that had started at a time: a later one may have the same pid."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = started is None or process.create_time() < started + _SAME_PROCESS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False


def read_lock_holder(run: RunDir) -> dict[str, Any] | None:
    """Return the lock's holder (`pid`, `host`, `command`, `since`); None if there is none, as far as known."""
    try:
        holder = read_json(run.lock_holder)
        known = {key: holder[key] for key in ("pid", "host", "command", "since")}
        since = datetime.fromisoformat(known["since"]).timestamp()
    except (StoreError, KeyError, TypeError, ValueError):
        return None
    dead = known["host"] == socket.gethostname() and not is_process_alive(int(known["pid"]), since)
    return None if dead else known


def count_stored(run: RunDir) -> list[dict[str, Any]]:
    """Return `planned` episodes, `stored` trajectories and `judgements` by split and iteration, oldest first."""
    rows = []
    for split in Split:
        plans = run.plan(split, 0).parent.glob(f"{split}.iteration_*.jsonl")
        planned = {int(number) for file in plans if (number := file.stem.rpartition("_")[2]).isdecimal()}
        for iteration in sorted(planned.union(run.list_iterations(split))):
            folder = run.part(split, iteration).parent
            files = {
                "planned": [run.plan(split, iteration)],
                "stored": folder.glob("part-*.jsonl"),
                "judgements": folder.glob("verdicts-*.jsonl"),
            }
            counts = {name: sum(map(_count_lines, paths)) for name, paths in files.items()}
            rows.append({"split": split.value, "iteration": iteration, **counts})
    return rows


def _count_lines(file: Path) -> int:
    require_regular(file)
    with contextlib.suppress(OSError):
        size = file.stat().st_size
        return sum(_count_lines_of(file, at, min(_BLOCK, size - at)) for at in range(0, size, _BLOCK))
    return 0


# `status --watch` counts each second: of a file, which only grows, it reads the last block.
@lru_cache(maxsize=65536)
def _count_lines_of(file: Path, start: int, length: int) -> int:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(length).count(b"\n")


def _read(file: Path) -> RankStatus | None:
    with contextlib.suppress(StoreError, ValidationError):
        return RankStatus.model_validate(read_json(file))
    return None


class RunningCommand(Record):
    """A command that has started and not finished."""

    command: Literal[
        "rollout", "gateway", "judge", "score", "eval", "generate", "import", "prepare", "train", "loop", "curriculum"
    ]
    options: dict[str, Any]
    """Options of the command, as keyword arguments of its function."""
    since: str
    """ISO 8601, UTC."""
    interrupted: tuple[dict[str, Any], ...] = ()
    """Earlier commands that are to be resumed after this one, oldest first, each with the fields above."""


# These do themselves what was interrupted before them.
_LOOPS = ("loop", "curriculum", "eval")
# These begin with what earlier stages left: of what was interrupted before them only a loop still has something to do.
_UPDATES = ("prepare", "train")


def begin(run: RunDir, command: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Record the start of a command. Return the interrupted ones that are to be resumed after it."""
    earlier: list[dict[str, Any]] = []
    with contextlib.suppress(StoreError):  # a damaged note is replaced
        if command not in _LOOPS and (before := read_running_command(run)):
            earlier = [*before.interrupted, before.model_dump(exclude={"interrupted"})]
    superseded = {command, *(one.get("command") for one in earlier if command in _UPDATES)}.difference(_LOOPS)
    kept = [one for one in earlier if one.get("command") not in superseded]
    noted = {"command": command, "options": options, "since": now(), "interrupted": kept}
    write_json(run.state, RunningCommand.model_validate(noted).model_dump(mode="json"))
    return kept


def finish(run: RunDir, interrupted: Sequence[dict[str, Any]]) -> None:
    """Record the end of a command; the newest of those that were interrupted before it is the next to be resumed."""
    if interrupted:
        write_json(run.state, {**interrupted[-1], "interrupted": interrupted[:-1]})
    else:
        run.state.unlink(missing_ok=True)


@contextmanager
def note_command(run: RunDir, command: str, options: dict[str, Any]) -> Iterator[None]:
    """Note a command while the block runs, so that it can be resumed unless the block succeeds."""
    if command == "record":  # nothing is left to resume, and what another command left can still be
        yield
        return
    before = begin(run, command, options)
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if command == "gateway":  # open sessions wait in the run
            finish(run, before)
        raise
    finish(run, before)


def read_running_command(run: RunDir) -> RunningCommand | None:
    """Return the interrupted command, or None. Raises `StoreError` if the file is damaged."""
    if not run.state.is_file():
        return None
    hint = f"remove it and repeat the command itself, e.g. webgym loop {run.root}: it goes on where it stopped"
    with refuse_invalid(f"{run.state}: the note of the interrupted command is damaged", hint):
        return RunningCommand.model_validate(read_json(run.state))


@contextmanager
def lock_run(run: RunDir, command: str) -> Iterator[None]:
    """Hold the run's lock. Raises `RunLockedError` naming the holder; the operating system releases it if we die."""
    from filelock import FileLock, Timeout  # slow to import

    try:
        run.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(run.lock)
        lock.acquire(timeout=0)
    except Timeout:
        who = "another webgym"
        if (holder := read_lock_holder(run)) is not None:
            who = f"`webgym {holder['command']}` (process {holder['pid']} on {holder['host']}, since {holder['since']})"
        raise RunLockedError(
            f"{run.root}: locked by {who}", hint="wait for it, or stop it, then run the same command again"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{run.root}: can't be written: {error.strerror}", hint=_HINTS.get(error.errno or 0, "")
        ) from error
    try:
        write_json(
            run.lock_holder, {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": now()}
        )
        yield
    finally:
        with contextlib.suppress(OSError):
            run.lock_holder.unlink(missing_ok=True)
        lock.release()
