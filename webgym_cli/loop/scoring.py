"""Scoring of stored episodes; an outcome reward model (ORM) without a server in the settings is served meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from webgym_cli.config.judge import OrmSettings
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import NONE
from webgym_cli.loop.context import StageContext
from webgym_cli.records.events import make_event
from webgym_cli.records.trajectory import PromptVersion
from webgym_cli.rewards.engine import execute_scoring
from webgym_cli.rewards.judge.scorer import JudgeScorer
from webgym_cli.rewards.orm.client import query_served_model
from webgym_cli.rewards.orm.scorer import OrmScorer, require_orm
from webgym_cli.rewards.selection import Scorer, ScoringPlan
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import ANY_PORT, plan_servers
from webgym_cli.store.checkpoints import locate_model
from webgym_cli.store.index.query import refresh_index
from webgym_cli.util.optional import when
from webgym_cli.venvs.locate import resolve_device, role_python


async def score(context: StageContext, plan: ScoringPlan) -> dict[str, Any]:
    """Score the planned trajectories by the plan's scorer and return the summary."""
    skipped = sum(plan.skipped.values())
    message = f"{len(plan.pending)} trajectories to {plan.scorer.stage}, {skipped} skipped"
    context.announce(plan.to_json(), message, plan.damaged)
    async with _open_scorer(context, plan) as scorer:
        summary = await execute_scoring(plan, context.run, scorer, context.sink, context.budget)
        context.record(make_event(**summary), scorer.format_summary(summary))
        refresh_index(context.run, context.sink)
        return summary


@asynccontextmanager
async def _open_scorer(context: StageContext, plan: ScoringPlan) -> AsyncIterator[Scorer]:
    """Yield the plan's scorer with a model that can be asked; checks and stored verdicts need none."""
    settings = context.settings
    if isinstance(plan.scorer, JudgeScorer):
        async with settings.judge.reach() as judge:
            yield JudgeScorer(judge, context.run)
    elif isinstance(plan.scorer, OrmScorer):
        own = plan.to_ask > 0 and not settings.orm.base_url
        async with reachable_orm(context, needed=plan.to_ask > 0) as orm:
            yield OrmScorer(orm, when(own, settings.serve.startup_timeout))
    else:
        yield plan.scorer


@asynccontextmanager
async def reachable_orm(context: StageContext, *, needed: bool) -> AsyncIterator[OrmSettings]:
    """Yield the ORM settings with a base URL; if they have none and one is needed, serve the ORM within the block."""
    settings, orm = context.settings, context.settings.orm
    if orm.base_url or not needed:
        yield orm
        return
    python, device = role_python(settings, "serve"), resolve_device(settings.venvs.device)
    logs = context.logs / "orm"  # a running policy server has a log of the same name
    logs.mkdir(parents=True, exist_ok=True)
    served = {
        "port": ANY_PORT,
        "replicas": 1,
        "served_model_name": orm.model,
        "max_model_len": orm.max_tokens + 1,  # plus one generated token
        "reasoning_parser": NONE,
    }
    # ORM requests are chats, independent of the policy's prompt version
    own = settings.with_changes(serve=served, context_config={"prompt_version": PromptVersion.WEBRL})
    plans = plan_servers(own, orm.model, python, device)
    fleet = Fleet(plans, logs, context.sink, restarts=settings.serve.restarts)
    try:
        await fleet.serve(orm.model)
        async with fleet.watched():
            yield orm.model_copy(update={"base_url": fleet.base_urls[0]})
    finally:
        await fleet.stop()


def resolve_orm_model(settings: Settings) -> Settings:
    """Return the settings with the ORM's folder, or its name, which its server tells. Raises `SettingsError`."""
    orm = settings.orm
    require_orm(orm)
    if orm.model and orm.base_url:
        return settings
    if orm.model:  # a run's `orm/model.pt` links to another checkpoint after each training: that is another model
        return settings.with_changes(orm={"model": locate_model(Path(orm.model))})
    return settings.with_changes(orm={"model": query_served_model(orm)})
