"""The optimizer steps of a run's trainings, from the trainers' logs that its attempts keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from webgym_cli.records.base import is_finite
from webgym_cli.records.stored_events import TrainingEvent
from webgym_cli.records.training_files import TRAINER_LOG
from webgym_cli.store.metrics import read_records
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_valid_lines
from webgym_cli.util.json_values import parse_object

# Maximum points of a curve; each is the mean of as many log lines as it takes.
POINTS = 100


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
