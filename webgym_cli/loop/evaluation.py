"""The evaluations of a loop's policy versions, as its metrics tell."""

from __future__ import annotations

from typing import Any

from webgym_cli.records.stored_events import EvaluationEvent
from webgym_cli.store.metrics import read_valid_events
from webgym_cli.store.run import RunDir


def find_evaluation(run: RunDir, version: int) -> dict[str, Any] | None:
    """Return the evaluation of a policy version, if it has one."""
    return next((event for event in read_valid_events(run, EvaluationEvent) if event["iteration"] == version), None)


def reached(run: RunDir, version: int, until: float | None) -> bool:
    """Whether the evaluation of a policy version has the success rate at which the loop ends early."""
    rate = (find_evaluation(run, version) or {}).get("success_rate")
    return until is not None and rate is not None and rate >= until
