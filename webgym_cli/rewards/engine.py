"""The scoring engine: scores stored trajectories concurrently and stores each judgement."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from webgym_cli.jobs.budget import Budget, Work
from webgym_cli.jobs.workers import Failures, run_workers
from webgym_cli.records.events import Event, EventSink, make_event
from webgym_cli.records.judgement import NO_SCREENSHOT
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.selection import (
    PendingTrajectory,
    Scorer,
    ScoreResult,
    ScoringCounts,
    ScoringPlan,
    load_pending,
)
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.metrics import Blocklist
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import when


async def execute_scoring(
    plan: ScoringPlan, run: RunDir, scorer: Scorer, sink: EventSink, budget: Budget | None = None
) -> dict[str, Any]:
    """Score the pending trajectories of a plan, close the scorer, and return the summary event.

    Raises `WebGymError` after too many consecutive failures; earlier judgements are already stored.
    """
    start, counts = time.monotonic(), ScoringCounts(owed=len(plan.pending))
    budget, blocklist = budget or Budget(), Blocklist(run, 0)
    failures = Failures(min(scorer.concurrency, counts.owed), counts.owed)
    waiting = load_pending(run, plan.pending)

    async def work() -> None:
        for pending, trajectory in waiting:
            is_judge = scorer.source == "judge"
            async with budget.admit(Work.JUDGEMENT) if is_judge else nullcontext(True) as fits:
                if not fits:
                    return
                result = await scorer.score(pending, trajectory)
                if (judgement := result.judgement) is not None:
                    append_judgement(run, pending.split, pending.iteration, judgement)
                    if judgement.success is not None:
                        blocklist.lift(pending.id)
                    if is_judge:
                        budget.charge(Work.JUDGEMENT, judgement.requests, judgement.calls)
            counts.add(pending, result)
            sink(_describe(scorer, pending, trajectory, result, counts))
            if result.problem != NO_SCREENSHOT:  # which says nothing about the scorer
                failures.record(result.problem, scorer.hint)

    try:
        await run_workers(failures.workers, work)
    finally:
        await scorer.close()
    budget.require()
    return scorer.summarize(counts, round(time.monotonic() - start, 2))


def _describe(
    scorer: Scorer, pending: PendingTrajectory, trajectory: Trajectory, result: ScoreResult, counts: ScoringCounts
) -> Event:
    """Return the event of one trajectory."""
    rate = f"{counts.successes / counts.verdicts:.0%} success" if counts.verdicts else f"no {scorer.noun} yet"
    failed = when(counts.failed, f"  {scorer.failure} {counts.failed}")
    facts = {"failure_detail": result.problem or None, "environment": pending.environment, **result.facts}
    return make_event(
        scorer.event,
        id=pending.id,
        task=trajectory.task.id,
        success=result.success,
        **facts,
        bar=scorer.stage,
        done=counts.done,
        total=counts.owed,
        facts=f"{rate}{failed}",
    )
