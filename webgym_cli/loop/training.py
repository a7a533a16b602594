"""Training of the current policy on its prepared data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.prepare.data import PREPARED_DATA, PreparedData
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir
from webgym_cli.train.backend import PlanInputs, TrainPlan
from webgym_cli.train.registry import current_backend
from webgym_cli.util.optional import known_or

if TYPE_CHECKING:
    from webgym_cli.loop.context import StageContext


def current_data(run: RunDir, settings: Settings) -> PreparedData[Any]:
    """Return what the backend of the run's current iteration trains on."""
    return PREPARED_DATA.find(current_backend(run, settings).data)


def plan_training(run: RunDir, settings: Settings, environ: Mapping[str, str] | None = None) -> TrainPlan:
    """Return the plan for training the current policy on its prepared data; writes nothing.

    Raises `MissingStageError` without prepared data, `VenvError` without the trainer, `UsageError` for damaged files.
    `environ` is this process's environment unless given.
    """
    backend = current_backend(run, settings)
    backend.check_run(run)
    prepared = PREPARED_DATA.find(backend.data)
    return backend.plan(PlanInputs(run, settings, known_or(environ, os.environ), prepared))


async def train(context: StageContext, plan: TrainPlan | None = None) -> None:
    """Train by `plan`, default `plan_training`; releases the servers' GPUs first."""
    # Here, because a plan needs no event loop.
    from webgym_cli.train.execute import execute as execute_training
    from webgym_cli.train.plan import report_offline

    plan = plan or plan_training(context.run, context.settings)
    if plan.data.iteration != version(context.run):  # planned before this process locked the run
        raise UsageError(f"{context.run.root}: another command has trained it meanwhile", hint="run the command again")
    current_data(context.run, context.settings).renew_config(context.run, context.settings, context.sink)
    reached = await context.tracker.make_way()
    await context.release_gpus()
    if not reached:
        plan = report_offline(plan)
    await execute_training(plan, context.run, context.settings, context.logs, context.sink)
    context.note_trainings()
