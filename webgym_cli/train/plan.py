"""Decides how a training runs, from what is on disk and nothing else. `--dry-run` prints it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from webgym_cli.config.model import Settings
from webgym_cli.store.run import RunDir
from webgym_cli.train.backend import PlanInputs
from webgym_cli.train.registry import current_backend
from webgym_cli.train.training_plan import TrainPlan


def plan_training(
    run: RunDir, settings: Settings, environ: Mapping[str, str] | None = None, *, train_config: str | None = None
) -> TrainPlan:
    """Return how the current policy will be trained on what was prepared for it.

    Raises `MissingStageError` where nothing was, `VenvError` without the trainer, `UsageError` for damaged files.
    `environ` is this process's environment unless given; `train_config`: see `PlanInputs`.
    """
    inputs = PlanInputs(run, settings, os.environ if environ is None else environ, train_config)
    return current_backend(run, settings).plan(inputs)
