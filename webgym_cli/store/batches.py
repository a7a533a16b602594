"""The ledger of a run: which trajectories each training is made of, one line a batch, written before it trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pydantic import ValidationError

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.task import Split
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import append_lines, read_lines


def append_batch(run: RunDir, batch: TrainingBatch) -> None:
    """Append a batch durably, unless the line of its parent that counts says the same. Raises `StoreError`."""
    if not batch.same_content(read_batches(run).get(batch.parent)):
        append_lines(run.batches, batch.to_line())


def read_batches(run: RunDir) -> dict[int, TrainingBatch]:
    """Return the batch of each parent version, oldest first; a line that a crash tore is skipped."""
    batches = {batch.parent: batch for batch in scan_batches(run)}
    return {parent: batches[parent] for parent in sorted(batches)}


def scan_batches(run: RunDir) -> Iterator[TrainingBatch]:
    """Yield all lines in the order of writing; one that a crash tore is skipped: nothing was trained on it."""
    if run.batches.is_file():
        for _, line in read_lines(run.batches):
            with suppress(ValidationError):
                yield TrainingBatch.model_validate_json(line)


def read_async_batches(run: RunDir, version: int) -> dict[int, TrainingBatch]:
    """Return the batches of the run's asynchronous trainings by parent version, oldest first.

    `version`: the current policy's. Raises `StoreError` where one that was trained is missing: which trajectories it
    used up can't be told.
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
    """Return the size of each file of training trajectories and judgements, by its path from the run."""
    folders = (run.part(Split.TRAIN, iteration).parent for iteration in iterations)
    files = (file for folder in folders for file in sorted(folder.glob("*.jsonl")))
    return {str(file.relative_to(run.root)): file.stat().st_size for file in files}


def require_turns(run: RunDir) -> None:
    """Raise `UsageError` where a run's rollouts and trainings take no turns: its windows are no iterations."""
    if any(batch.mode == "async" for batch in scan_batches(run)):
        raise UsageError(
            f"{run.root}: trains asynchronously: its rollouts are not of single iterations",
            hint=f"webgym loop {run.root} -s loop.mode=async",
        )
