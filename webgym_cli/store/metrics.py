"""Append-only ledgers of a run: events (`metrics.jsonl`), training batches, logs of the trainers, blocked sites."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from pydantic import AwareDatetime, ValidationError

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.base import Record, is_finite
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.events import Event
from webgym_cli.records.stored_events import StoredEvent, TrainingEvent
from webgym_cli.records.task import Split
from webgym_cli.records.training_files import TRAINER_LOG
from webgym_cli.store.run import RunDir, append_to_run, now
from webgym_cli.util.files import read_valid_lines
from webgym_cli.util.json_values import encode_json, parse_object
from webgym_cli.util.urls import site_of

EventT = TypeVar("EventT", bound=StoredEvent)
# Maximum points of a curve; each is the mean of as many log lines as it takes.
POINTS = 100


def append_event(run: RunDir, event: Event) -> None:
    """Append an event with its time, without its message. Raises `StoreError`."""
    facts = {key: value for key, value in event.items() if key != "message"}
    append_to_run(run, run.metrics, encode_json({**facts, "at": now()}))


def read_events(run: RunDir, *names: str) -> Iterator[dict[str, Any]]:
    """Yield the events with these names, oldest first; a line truncated by a crash is skipped."""
    for event in read_valid_lines(run.metrics, parse_object):
        if event.get("event") in names:
            yield event


def read_valid_events(run: RunDir, record: type[StoredEvent]) -> Iterator[dict[str, Any]]:
    """Yield the valid events of a kind with all their keys, oldest first; invalid ones are skipped."""
    for event in read_events(run, record.name_of_event):
        with contextlib.suppress(ValidationError):
            record.model_validate(event)
            yield event


def read_records(run: RunDir, record: type[EventT]) -> Iterator[EventT]:
    """Yield the events of a kind as records, oldest first; invalid ones are skipped."""
    for event in read_events(run, record.name_of_event):
        with contextlib.suppress(ValidationError):
            yield record.model_validate(event)


def append_batch(run: RunDir, batch: TrainingBatch) -> None:
    """Append a batch durably, unless the newest line of its parent version is equal. Raises `StoreError`."""
    left_out = {"created_at", "config_digest"}  # another one would lead to the same training
    newest = read_batches(run).get(batch.parent)
    if newest is None or batch.model_dump(exclude=left_out) != newest.model_dump(exclude=left_out):
        append_to_run(run, run.batches, batch.to_line())


def read_batches(run: RunDir) -> dict[int, TrainingBatch]:
    """Return the batch of each parent version, oldest first; a line truncated by a crash is skipped."""
    batches = {batch.parent: batch for batch in scan_batches(run)}
    return {parent: batches[parent] for parent in sorted(batches)}


def scan_batches(run: RunDir) -> Iterator[TrainingBatch]:
    """Yield all lines in file order; a line truncated by a crash is skipped, since nothing was trained on it."""
    return read_valid_lines(run.batches, TrainingBatch.model_validate_json)


def read_async_batches(run: RunDir, version: int) -> dict[int, TrainingBatch]:
    """Return the batches of the run's asynchronous trainings by parent version, oldest first.

    `version`: the current policy's. Raises `StoreError` if the batch of a finished training is missing, because its
    trajectories are then unknown.
    """
    batches = {parent: batch for parent, batch in read_batches(run).items() if batch.mode == "async"}
    missing = [parent for parent in range(min(batches, default=version), version) if parent not in batches]
    if missing:
        raise StoreError(
            f"{run.batches}: the batch of version {missing[0]} is missing or damaged",
            hint="restore the file from a copy of the run",
        )
    return batches


def measure_ends(run: RunDir, iterations: Sequence[int]) -> dict[str, int]:
    """Return the size in bytes of each file of training trajectories and judgements, by path relative to the run."""
    folders = (run.part(Split.TRAIN, iteration).parent for iteration in iterations)
    files = chain.from_iterable(sorted(folder.glob("*.jsonl")) for folder in folders)
    return {str(file.relative_to(run.root)): file.stat().st_size for file in files}


def is_async(run: RunDir) -> bool:
    """Whether a run has trained asynchronously: its rollout windows are not iterations."""
    return any(batch.mode == "async" for batch in scan_batches(run))


def require_turns(run: RunDir) -> None:
    """Raise `UsageError` for an asynchronous run."""
    if is_async(run):
        raise UsageError(
            f"{run.root}: trains asynchronously: its rollouts are not of single iterations",
            hint=f"webgym loop {run.root} -s loop.mode=async",
        )


def find_trainer_logs(run: RunDir, training: str) -> list[Path]:
    """Return the logs of the training of this name, in the order of the attempts."""
    return sorted(run.logs.glob(f"attempt_*/{training}.{TRAINER_LOG}"))


def read_trainer_log(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a trainer's log, each with its step as `current_steps`; damaged lines are left out."""
    return (line for line in read_valid_lines(log, parse_object) if isinstance(line.get("current_steps"), int))


def read_optimizer_steps(run: RunDir) -> Iterator[dict[str, Any]]:
    """Yield the lines of the trainers' logs, in order.

    Each with the `iteration` and `version` of its training, and `optimizer_step`, which counts on from training to
    training.
    """
    before = 0
    for event in read_records(run, TrainingEvent):
        last = 0
        for line in chain.from_iterable(map(read_trainer_log, find_trainer_logs(run, event.name))):
            last = max(last, line["current_steps"])
            of = {"iteration": event.iteration, "version": event.version}
            yield of | {"optimizer_step": before + line["current_steps"]} | line
        before += last


def read_step_curves(run: RunDir, metrics: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return each metric that the logs have over the optimizer steps.

    A point is the `mean` of some `lines` of the log; `optimizer_step` and `version` are those of the last.
    """
    # without a loss: evaluations, and the line that sums a training up
    logged = [line for line in read_optimizer_steps(run) if "loss" in line]
    curves = {}
    for metric in metrics:
        known = [line for line in logged if is_finite(line.get(metric))]
        size = -(-len(known) // POINTS) or 1
        parts = [known[start : start + size] for start in range(0, len(known), size)]
        if parts:
            curves[metric] = [
                {
                    **{name: part[-1][name] for name in ("optimizer_step", "version")},
                    "mean": fmean(line[metric] for line in part),
                    "lines": len(part),
                }
                for part in parts
            ]
    return curves


class Block(Record):
    """One entry of `blocklist.jsonl`."""

    site: str
    """Registrable domain, otherwise host and port."""
    url: str
    """URL of the blocked page."""
    trajectory: str
    """Id of the trajectory that was blocked."""
    reason: str = ""
    blocked_at: AwareDatetime
    expires_at: AwareDatetime


@dataclass(slots=True)
class Blocklist:
    """Blocklist of a run: the file's entries and those added since."""

    run: RunDir
    hours: float
    """Duration of a block in hours; 0: nothing is blocked."""
    _blocks: dict[tuple[str, str], Block] = field(default_factory=dict)
    """Newest entry by site and trajectory."""

    def __post_init__(self) -> None:
        """Read the file; unreadable lines are ignored."""
        for block in read_valid_lines(self.run.blocklist, Block.model_validate_json):
            self._blocks[block.site, block.trajectory] = block

    def sites(self) -> frozenset[str]:
        """Return the sites that are blocked now."""
        if not self.hours:
            return frozenset()
        now = datetime.now(UTC)
        return frozenset(site for (site, _), block in self._blocks.items() if block.expires_at > now)

    def add(self, url: str, trajectory: str, reason: str) -> Block | None:
        """Block a site; None if `hours` is 0 or the URL has no site. Raises `StoreError`."""
        site, now = site_of(url), datetime.now(UTC)
        if not self.hours or not site:
            return None
        block = Block(
            site=site,
            url=url,
            trajectory=trajectory,
            reason=reason[:500],
            blocked_at=now,
            expires_at=now + timedelta(hours=self.hours),
        )
        self._append(block)
        return block

    def lift(self, trajectory: str) -> None:
        """End the blocks that a trajectory caused, after a new judgement found no bot check. Raises `StoreError`."""
        now = datetime.now(UTC)
        for (_, cause), block in list(self._blocks.items()):
            if cause == trajectory and block.expires_at > now:
                self._append(block.model_copy(update={"expires_at": now, "reason": "judged again: not blocked"}))

    def _append(self, block: Block) -> None:
        append_to_run(self.run, self.run.blocklist, block.model_dump_json())
        self._blocks[block.site, block.trajectory] = block
