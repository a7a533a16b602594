"""Judges finished trajectories while others still run, so that neither waits for the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement, judged
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.monitoring.monitor import EpisodeStage, Monitor
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.run import RunDir

TrajectoryJudge = Callable[[Trajectory], Awaitable[Judgement]]
"""Judges a trajectory. What the judge does wrong is a failure in the judgement, not an exception."""

DOWN_AFTER = 8
"""So many judgements in a row without an answer: the judge is down, the rest waits for `webgym judge`."""


@dataclass(slots=True)
class JudgeLine:
    """The trajectories that wait for their judgement, and the workers that see to them."""

    judge: TrajectoryJudge
    run: RunDir
    monitor: Monitor
    rank: int
    told: Callable[[Trajectory, Judgement], None]
    """Called with each judged trajectory, its judgement stored."""
    down: str = ""
    """Why the judge was given up, once it was."""
    _waiting: asyncio.Queue[Trajectory] = field(default_factory=asyncio.Queue)
    _failed_in_a_row: int = 0
    _answered: bool = False
    _last_word: str = ""

    def put(self, trajectory: Trajectory) -> None:
        """Line up a stored trajectory."""
        if not self.down:
            self._waiting.put_nowait(trajectory)
            self.monitor.queue("judge", self._waiting.qsize())

    async def work(self) -> None:
        """Judge what comes, until cancelled; several may work at once."""
        while True:
            trajectory = await self._waiting.get()
            try:
                if not self.down:
                    await self._see_to(trajectory)
            finally:
                self._waiting.task_done()
                self.monitor.queue("judge", self._waiting.qsize())

    async def drain(self) -> None:
        """Wait until nothing waits any more. A judge that never answered is down, however few have asked."""
        await self._waiting.join()
        if self._failed_in_a_row and not self._answered:
            self.down = self._last_word

    async def _see_to(self, trajectory: Trajectory) -> None:
        with self.monitor.stage(trajectory.episode, EpisodeStage.JUDGE):
            judgement = await self.judge(trajectory)
        append_judgement(self.run, trajectory.split, trajectory.iteration, judgement, self.rank)
        self.told(judged(trajectory, judgement), judgement)
        silent = judgement.failure is FailureKind.JUDGE_FAILED and judgement.unavailable
        self._failed_in_a_row = self._failed_in_a_row + 1 if silent else 0
        self._answered = self._answered or not silent
        self._last_word = judgement.failure_detail
        if self._failed_in_a_row >= DOWN_AFTER:
            self.down = self._last_word
