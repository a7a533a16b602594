"""Judging of stored trajectories while other episodes still run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from webgym_cli.jobs.budget import Budget, Work
from webgym_cli.jobs.workers import MAX_CONSECUTIVE_FAILURES
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement, with_verdict
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.monitor import Monitor
from webgym_cli.rollout.stage_timer import EpisodeStage
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.run import RunDir

# Returns the judgement of a trajectory; an error of the judge is a failure in the judgement, not an exception.
TrajectoryJudge = Callable[[Trajectory], Awaitable[Judgement]]


@dataclass(slots=True)
class JudgeQueue:
    """Queue of the trajectories that wait for a judgement, and its workers."""

    judge: TrajectoryJudge
    run: RunDir
    monitor: Monitor
    on_judged: Callable[[Trajectory, Judgement], None]
    """Called with each judged trajectory once its judgement is stored."""
    budget: Budget = field(default_factory=Budget)
    on_refused: Callable[[], None] = lambda: None
    """Called when the budget has no room for a judgement."""
    down: str = ""
    """Error of an unavailable judge; empty while it responds."""
    _waiting: asyncio.Queue[Trajectory] = field(default_factory=asyncio.Queue)
    _consecutive_failures: int = 0
    _answered: bool = False
    _last_error: str = ""

    def put(self, trajectory: Trajectory) -> None:
        """Queue a stored trajectory."""
        if not self.down:
            self._waiting.put_nowait(trajectory)
            self.monitor.queues["judge"] = self._waiting.qsize()

    async def work(self) -> None:
        """Judge queued trajectories until cancelled; several workers may run."""
        while True:
            trajectory = await self._waiting.get()
            try:
                async with self.budget.admit(Work.JUDGEMENT) as fits:
                    if not fits:
                        self.on_refused()
                    elif not self.down:
                        await self._judge(trajectory)
            finally:
                self._waiting.task_done()
                self.monitor.queues["judge"] = self._waiting.qsize()

    async def drain(self) -> None:
        """Wait until the queue is empty. A judge that never answered counts as down after any number of requests."""
        await self._waiting.join()
        if self._consecutive_failures and not self._answered:
            self.down = self._last_error

    async def _judge(self, trajectory: Trajectory) -> None:
        with self.monitor.stages.time(trajectory.episode, EpisodeStage.JUDGE):
            judgement = await self.judge(trajectory)
        append_judgement(self.run, trajectory.split, trajectory.iteration, judgement)
        self.budget.charge(Work.JUDGEMENT, judgement.requests, judgement.calls)
        silent = judgement.failure is FailureKind.JUDGE_FAILED and judgement.unavailable
        if silent:
            self._consecutive_failures += 1
        else:
            self._consecutive_failures = 0
            self._answered = True
        self._last_error = judgement.failure_detail
        # The judge counts as down: `webgym judge` judges the rest.
        if self._consecutive_failures >= MAX_CONSECUTIVE_FAILURES:
            self.down = self._last_error
        # Only now: of a judge that is down it ends an asynchronous loop, whose other episodes will not be judged.
        self.on_judged(with_verdict(trajectory, judgement), judgement)
