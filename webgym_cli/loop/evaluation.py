"""The evaluations of a loop's policy versions, as its metrics tell."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from webgym_cli.loop.pipeline import Pipeline
from webgym_cli.records.events import RolloutSummary, rename_event
from webgym_cli.records.stored_events import EvaluationEvent
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import read_valid_events
from webgym_cli.store.run import RunDir


def find_evaluation(run: RunDir, version: int) -> dict[str, Any] | None:
    """Return the evaluation of a policy version, if it has one."""
    return next((event for event in read_valid_events(run, EvaluationEvent) if event["iteration"] == version), None)


def is_due(run: RunDir, planned: Collection[int]) -> bool:
    """Whether the current policy version is to be evaluated and has not been."""
    return version(run) in planned and find_evaluation(run, version(run)) is None


def record_evaluation(pipeline: Pipeline, summary: RolloutSummary) -> None:
    """Record the summary of a rollout on the test split as an evaluation."""
    pipeline.record(rename_event(summary, "evaluation"))


def has_reached(run: RunDir, version: int, until: float | None) -> bool:
    """Whether the evaluation of a policy version has the success rate at which the loop ends early."""
    if until is None:
        return False
    rate = (find_evaluation(run, version) or {}).get("success_rate")
    return rate is not None and rate >= until
