"""The curve of a training that its trainer could not report: read from the trainer's own log, sent in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_lines

# The metric that the trainer draws its own over.
TRAINER_AXIS = "train/global_step"
# Facts of LLaMA-Factory's `trainer_log.jsonl`, and their names as the trainer reports them.
_NAMES = {"loss": "train/loss", "lr": "train/learning_rate", "epoch": "train/epoch", "eval_loss": "eval/loss"}


def read_offline_curve(run: RunDir, training: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield step and metrics of each logged step; nothing where the trainer reported online, or not at all."""
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
        if metrics.keys() & {"train/loss", "eval/loss"}:  # the last line sums up, without figures
            yield step, metrics
