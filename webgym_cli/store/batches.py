"""Batch ledger of a run: the trajectories of each training, one line per batch, written before the training starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.task import Split
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import append_lines, read_valid_lines


def append_batch(run: RunDir, batch: TrainingBatch) -> None:
    """Append a batch durably, unless the newest line of its parent version is equal. Raises `StoreError`."""
    left_out = {"created_at", "config_digest"}  # another one would lead to the same training
    newest = read_batches(run).get(batch.parent)
    if newest is None or batch.model_dump(exclude=left_out) != newest.model_dump(exclude=left_out):
        append_lines(run.batches, batch.to_line())


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
