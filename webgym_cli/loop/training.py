"""Training of the current policy on its prepared data."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.loop.context import StageContext
from webgym_cli.prepare.sft.training_files import refresh_train_config, renewed_train_config
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir
from webgym_cli.train.execute import execute as execute_training
from webgym_cli.train.plan import plan_training
from webgym_cli.train.process_env import report_offline
from webgym_cli.train.registry import current_backend
from webgym_cli.train.training_plan import TrainPlan


def plan_current_training(run: RunDir, settings: Settings) -> TrainPlan:
    """Return the training plan of the current iteration; writes nothing. Raises the errors of `plan_training`."""
    return plan_training(run, settings, train_config=renewed_train_config(run, settings))


async def train(context: StageContext, plan: TrainPlan | None = None) -> None:
    """Train by `plan`, default `plan_current_training`; releases the servers' GPUs first."""
    plan = plan or plan_current_training(context.run, context.settings)
    if plan.iteration != version(context.run):  # planned before this process locked the run
        raise UsageError(f"{context.run.root}: another command has trained it meanwhile", hint="run the command again")
    if current_backend(context.run, context.settings).data == "dataset":
        refresh_train_config(context.run, context.settings, context.sink)
    reached = await context.tracker.make_way()
    await context.release_gpus()
    plan = plan if reached else report_offline(plan)
    await execute_training(plan, context.run, context.settings, context.logs, context.sink)
    context.note_trainings()
