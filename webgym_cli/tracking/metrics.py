"""Metrics in Weights & Biases: of an event's numbers, and of a training's log whose trainer could not reach it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from webgym_cli.records.base import is_finite
from webgym_cli.records.series import is_served_elsewhere
from webgym_cli.store.run import RunDir
from webgym_cli.store.training_logs import find_trainer_logs, read_trainer_log
from webgym_cli.util.optional import when

# The step metric (x axis) of all metrics of webgym.
AXIS = "iteration"
# The step metric (x axis) of the trainer's metrics.
TRAINER_AXIS = "train/global_step"
# Keys of LLaMA-Factory's `trainer_log.jsonl` -> the names under which its trainer reports them.
_NAMES = {"loss": "train/loss", "lr": "train/learning_rate", "epoch": "train/epoch", "eval_loss": "eval/loss"}

# The fact of a training that holds metrics under names of their own: those of our own trainer.
_OWN = "metrics"
_NO_METRIC = {"event", "iteration", "split", _OWN}
# Facts that are no metric of the event, and those whose names the web makes up.
_LEFT_OUT = frozenset(_NO_METRIC | {"failures_by_site", "skipped_by_site", "skip_reasons", "servers"})
# Facts of a whole training whose names are the trainer's own, by its step.
_RENAMED = {"train/loss": "train/mean_loss", "train/steps": "train/optimizer_steps"}
_BOUNDS = {"interval": ("low", "high")}


def extract_metrics(event: Mapping[str, Any]) -> dict[str, float]:
    """Return an event's finite numbers, named `<event>/<fact>`, of nested facts `<event>/<fact>/<fact>`."""
    facts = {key: value for key, value in event.items() if key not in _LEFT_OUT}
    named = name_metrics(name_event(event), facts)
    own: dict[str, float] = event.get(_OWN, {})
    return {_RENAMED.get(name, name): value for name, value in named.items()} | own


def name_metrics(name: str, facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of facts, named `<name>/<fact>`, of nested facts `<name>/<fact>/<fact>`."""
    return {f"{name}/{fact}": value for fact, value in _numbers(facts)}


def name_event(event: Mapping[str, Any]) -> str:
    """Return the first part of an event's metric names; results of another server have names of their own."""
    policy = event.get("policy")
    other = when(isinstance(policy, str) and is_served_elsewhere(policy), [policy])
    return "/".join(map(_clean, [event["event"], *other]))


def _numbers(facts: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in facts.items():
        name = _clean(key)
        if isinstance(value, dict):
            yield from ((f"{name}/{inner}", number) for inner, number in _numbers(value) if key not in _LEFT_OUT)
        elif isinstance(value, list) and len(value) == len(bounds := _BOUNDS.get(key, ())):
            yield from _numbers({f"{name}_{bound}": number for bound, number in zip(bounds, value, strict=True)})
        elif is_finite(value):
            yield name, value


def _clean(name: str) -> str:
    """Replace the characters that are special in wandb's metric names."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)


def read_offline_curve(run: RunDir, training: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield (step, metrics) of each logged step; nothing if the trainer reported online, or not at all."""
    for log in find_trainer_logs(run, str(training.get("name"))):
        if not any(log.parent.glob("wandb/offline-run-*")):
            continue
        for line in read_trainer_log(log):
            numbers = {name: line.get(key) for key, name in _NAMES.items()}
            metrics = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
            if metrics.keys() & {"train/loss", "eval/loss"}:  # the last line is a summary without metrics
                yield line["current_steps"], metrics
