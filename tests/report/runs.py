"""Runs for the tests of the report: small buffers, events by hand."""

import json
from datetime import UTC, datetime
from typing import Any

from tests.inspect.buffers import attempt
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.report.facts import gather_facts
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir

START = datetime(2026, 1, 2, tzinfo=UTC).timestamp()


def did(
    number: int, name: str, solved: bool | None, iteration: int = 0, task: Task | None = None, **changes: Any
) -> Trajectory:
    """Return a policy's test episode at a task of that name, or at the given one; its number is its seed."""
    trajectory = attempt(number, name, solved, iteration, **{"policy": "model", **changes})
    return trajectory if task is None else trajectory.model_copy(update={"task": task})


def at(seconds: float) -> str:
    """Return the moment so many seconds after the start, as events have it."""
    return datetime.fromtimestamp(START + seconds, UTC).isoformat(timespec="milliseconds")


def note(run: RunDir, *events: dict[str, Any]) -> None:
    """Write events, each with its own time."""
    with run.metrics.open("a") as file:
        file.writelines(f"{json.dumps(event)}\n" for event in events)


def log_steps(run: RunDir, training: str, *steps: dict[str, Any]) -> None:
    """Write a trainer's log of so many steps, with a torn line and the line that sums the training up."""
    log = run.logs / "attempt_1" / f"{training}.trainer_log.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"current_steps": number, **of}) for number, of in enumerate(steps, 1)]
    log.write_text("\n".join([*lines, '{"current_st', "3", json.dumps({"current_steps": len(steps), "epoch": 1.0})]))


def facts(run: RunDir, gpus: int = 1, price: float | None = None) -> dict[str, Any]:
    """Return what a report tells of a run."""
    with open_index(run) as index:
        return gather_facts(run, index, gpus, price)
