"""Judging of stored trajectories, and the execution of any scorer's plan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from webgym_cli.config.judge import JudgeSettings
from webgym_cli.loop.context import StageContext
from webgym_cli.records.events import Event, JudgeSummary
from webgym_cli.rewards.engine import ScoringEngine
from webgym_cli.rewards.judge.scorer import JudgeScorer, format_judge_summary
from webgym_cli.rewards.judge.scripted import open_scripted
from webgym_cli.rewards.selection import Scorer, ScoringPlan
from webgym_cli.store.index.query import refresh_index

SummaryT = TypeVar("SummaryT", bound=Event)


async def judge(context: StageContext, plan: ScoringPlan) -> JudgeSummary:
    """Judge the planned trajectories and return the summary."""
    return await execute_scoring(context, plan, _open_scorer(context.settings.judge), format_judge_summary)


@asynccontextmanager
async def _open_scorer(settings: JudgeSettings) -> AsyncIterator[JudgeScorer]:
    async with open_scripted(settings) as reachable:
        yield JudgeScorer(reachable)


async def execute_scoring(
    context: StageContext,
    plan: ScoringPlan,
    opened: AbstractAsyncContextManager[Scorer[SummaryT]],
    format_summary: Callable[[SummaryT], str],
) -> SummaryT:
    """Score the planned trajectories and return the summary. `opened`: context manager of the scorer."""
    skipped = sum(plan.skipped.values())
    message = f"{len(plan.pending)} trajectories to {plan.scorer.stage}, {skipped} skipped"
    context.announce(plan.to_json(), message, plan.damaged)
    async with opened as scorer:
        summary = await ScoringEngine(plan, context.run, scorer, context.sink, context.budget).execute()
    context.record(summary, format_summary(summary))
    refresh_index(context.run, context.sink)
    return summary
