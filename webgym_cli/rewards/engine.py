"""The scoring engine: scores stored trajectories concurrently and stores each judgement."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.jobs.budget import Budget, Work
from webgym_cli.jobs.workers import Failures, run_workers
from webgym_cli.records.events import Event, EventSink, make_event
from webgym_cli.records.judgement import NO_SCREENSHOT, Judgement
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


@dataclass(slots=True)
class ScoringEngine:
    """Runs the plan of one `webgym judge` or `webgym score` command."""

    plan: ScoringPlan
    run: RunDir
    scorer: Scorer
    sink: EventSink
    budget: Budget = field(default_factory=Budget)
    counts: ScoringCounts = field(default_factory=ScoringCounts)
    _failures: Failures = field(init=False)
    _blocklist: Blocklist = field(init=False)

    def __post_init__(self) -> None:
        """Limit the concurrency to the number of pending trajectories."""
        self._blocklist = Blocklist(self.run, 0)
        pending = len(self.plan.pending)
        self._failures = Failures(min(self.scorer.concurrency, pending), pending)

    async def execute(self) -> dict[str, Any]:
        """Score the pending trajectories and return the summary event.

        Raises `WebGymError` after too many consecutive failures; earlier judgements are already stored.
        """
        start = time.monotonic()
        waiting = load_pending(self.run, self.plan.pending)
        try:
            await run_workers(self._failures.workers, lambda: self._work(waiting))
        finally:
            await self.scorer.close()
        self.budget.require()
        seconds = round(time.monotonic() - start, 2)
        return self.scorer.summarize(self.counts, seconds)

    async def _work(self, waiting: Iterator[tuple[PendingTrajectory, Trajectory]]) -> None:
        for pending, trajectory in waiting:
            is_judge = self.scorer.source == "judge"
            async with self.budget.admit(Work.JUDGEMENT) if is_judge else nullcontext(True) as fits:
                if not fits:
                    return
                result = await self.scorer.score(pending, trajectory)
                self._store(pending, result.judgement)
            self.counts.add(pending, result)
            self.sink(self._describe(pending, trajectory, result))
            if result.problem != NO_SCREENSHOT:  # which says nothing about the scorer
                self._failures.record(result.problem, self.scorer.hint)

    def _store(self, pending: PendingTrajectory, judgement: Judgement | None) -> None:
        if judgement is None:
            return
        append_judgement(self.run, pending.split, pending.iteration, judgement)
        if judgement.success is not None:
            self._blocklist.lift(pending.id)
        if judgement.source == "judge":
            self.budget.charge(Work.JUDGEMENT, judgement.requests, judgement.calls)

    def _describe(self, pending: PendingTrajectory, trajectory: Trajectory, result: ScoreResult) -> Event:
        """Return the event of one trajectory."""
        counts = self.counts
        rate = f"{counts.successes / counts.verdicts:.0%} success" if counts.verdicts else f"no {self.scorer.noun} yet"
        failed = when(counts.failed, f"  {self.scorer.failure} {counts.failed}")
        facts = {"failure_detail": result.problem or None, "environment": pending.environment, **result.facts}
        return make_event(
            self.scorer.event,
            id=pending.id,
            task=trajectory.task.id,
            success=result.success,
            **facts,
            bar=self.scorer.stage,
            done=counts.done,
            total=len(self.plan.pending),
            facts=f"{rate}{failed}",
        )
