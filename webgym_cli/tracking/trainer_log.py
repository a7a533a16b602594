"""Metrics of a training whose trainer could not reach the server, read from the trainer's own log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_lines

# The step metric (x axis) of the trainer's metrics.
TRAINER_AXIS = "train/global_step"
# Keys of LLaMA-Factory's `trainer_log.jsonl` -> the names under which its trainer reports them.
_NAMES = {"loss": "train/loss", "lr": "train/learning_rate", "epoch": "train/epoch", "eval_loss": "eval/loss"}


def read_offline_curve(run: RunDir, training: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield (step, metrics) of each logged step; nothing if the trainer reported online, or not at all."""
    for log in run.logs.glob(f"attempt_*/{training.get('name')}.trainer_log.jsonl"):
        if any(log.parent.glob("wandb/offline-run-*")):
            yield from _steps(line for _, line in read_lines(log))


def _steps(lines: Iterator[bytes]) -> Iterator[tuple[int, dict[str, float]]]:
    for line in lines:
        try:
            facts = json.loads(line)
            step = int(facts["current_steps"])
        except (ValueError, KeyError, TypeError):  # a damaged line
            continue
        numbers = {name: facts.get(key) for key, name in _NAMES.items()}
        metrics = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
        if metrics.keys() & {"train/loss", "eval/loss"}:  # the last line is a summary without metrics
            yield step, metrics
