"""Preparation of the training set of a run's outcome reward model (ORM), in the ORM's own nested run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from webgym_cli.config.load import load, load_with_sources
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import AUTO
from webgym_cli.config.shipped import shipped_root
from webgym_cli.jobs.signals import interruptible
from webgym_cli.prepare.sft.orm import execute_orm, plan_orm_dataset, require_labels
from webgym_cli.records.dataset import Prepared
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir, create_or_open, refuse_changes, saved_settings
from webgym_cli.store.status import lock_run

RECIPE = "orm.yaml"


def orm_settings(run: RunDir, config: Sequence[str], overrides: Sequence[str]) -> Settings:
    """Return the ORM's stored settings, or initially the run's settings with the shipped recipe.

    Raises `SettingsError`, also for changes of settings that an existing ORM run must keep.
    """
    if run.orm.exists:
        settings, sources = load_with_sources(config, overrides, run_config=run.orm.config, executes=True)
        refuse_changes(run.orm, settings, sources)
        return settings
    settings = load([shipped_root() / RECIPE, *config], overrides, run_config=run.config, executes=True)
    mine, policy = settings.policy_config, saved_settings(run).policy_config
    if mine.template == AUTO and mine.base_model == policy.base_model:  # unknown model family: use the run's template
        return settings.with_changes(policy_config={"template": policy.template})
    return settings


async def prepare_orm(run: RunDir, settings: Settings, sink: EventSink) -> Prepared:
    """Write the training set. Raises the errors of its plan, `WebGymError` without labels, and `RunLockedError`."""
    began = time.monotonic()
    with interruptible():
        plan = plan_orm_dataset(run, settings)
    require_labels(plan, run)
    with lock_run(run.orm, f"prepare {run.root} --target orm"):
        create_or_open(run.orm, settings)
        prepared = await execute_orm(plan, run, settings, sink)
        facts = prepared.model_dump(mode="json")
        append_event(run.orm, make_event("prepare", **facts, seconds=round(time.monotonic() - began, 2)))
    return prepared
