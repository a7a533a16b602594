"""Real trainings of a tiny model, for the tests that look at what comes of them."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import psutil

from webgym_cli.config.model import Settings
from webgym_cli.loop.training import plan_training
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.store.run import RunDir, new_attempt
from webgym_cli.train.execute import execute
from webgym_cli.train.trainer_log import read_log

FIRST, SECOND = "model_20260101_000000", "model_20260102_000000"


@dataclass
class Trained:
    run: RunDir
    settings: Settings
    checkpoint: Checkpoint
    events: list
    losses: list[float]

    @property
    def folder(self) -> Path:
        return self.run.checkpoints / self.checkpoint.name


def train(run: RunDir, settings: Settings, sink=lambda event: None) -> Trained:
    events = []

    def keep(event):
        events.append(event)
        sink(event)

    plan = plan_training(run, settings)
    checkpoint = asyncio.run(execute(plan, run, settings, new_attempt(run), keep))
    lines = read_log(run.logs / f"latest/{checkpoint.name}.trainer_log.jsonl")
    return Trained(run, settings, checkpoint, events, [line["loss"] for line in lines if "loss" in line])


def kill_trainer() -> bool:
    """SIGKILL every process of the trainer, of those that this test started."""
    tree = [child for child in psutil.Process().children(recursive=True) if "launch.yaml" in " ".join(child.cmdline())]
    for child in tree:
        if "guard.py" not in " ".join(child.cmdline()):
            child.kill()
    return bool(tree)
