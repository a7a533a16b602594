"""Rollout plans: the sampled episodes of each iteration, written before the first of them runs."""

from __future__ import annotations

from webgym_cli.records.task import Episode, Split
from webgym_cli.store.run import RunDir
from webgym_cli.store.validation import refuse_invalid
from webgym_cli.util.files import read_jsonl


def read_plan(run: RunDir, split: Split, iteration: int, *, of_sessions: bool = False) -> tuple[Episode, ...]:
    """Return the episodes planned so far; empty without a plan. Raises `StoreError`.

    `of_sessions`: those of the gateway's sessions.
    """
    path = run.plan(split, iteration, of_sessions=of_sessions)
    if not path.is_file():
        return ()
    hint = "restore it from a copy of the run, or start another run"
    with refuse_invalid(f"{path}: not a plan of this version", hint):
        return tuple(Episode.model_validate(value) for value in read_jsonl(path))
