"""Decides how a training runs, from what is on disk and nothing else. `--dry-run` prints it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from webgym_cli.config.model import Settings
from webgym_cli.store.current_algorithm import algorithm
from webgym_cli.store.run import RunDir
from webgym_cli.train.llamafactory.plan import plan_sft
from webgym_cli.train.rl_backend import plan_rl
from webgym_cli.train.training_plan import TrainPlan


def plan_training(run: RunDir, settings: Settings, environ: Mapping[str, str] | None = None) -> TrainPlan:
    """Return how the current policy will be trained on what was prepared for it.

    Raises `MissingStageError` where nothing was, `VenvError` without the trainer, `UsageError` for damaged files.
    `environ` is this process's environment unless given.
    """
    plan = plan_sft if algorithm(run, settings) == "sft" else plan_rl
    return plan(run, settings, os.environ if environ is None else environ)
