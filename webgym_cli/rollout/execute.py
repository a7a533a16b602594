"""Runs the owed episodes: so many at once, none waiting for another, one line stored as each ends."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.errors import WebGymError
from webgym_cli.records.events import EventSink
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.actors import Actor
from webgym_cli.rollout.episode import EpisodeRun
from webgym_cli.rollout.monitor import Monitor, tally
from webgym_cli.rollout.plan import Owed, RolloutPlan
from webgym_cli.store.buffer import append, scan
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.screenshots import ScreenshotStore

HOPELESS_AFTER = 8
"""So many failures in a row, and as many as run at once, end the rollout: something is down, retrying is no use."""


@dataclass(slots=True)
class Rollout:
    """One rollout command at work."""

    plan: RolloutPlan
    run: RunDir
    settings: Settings
    actor: Actor
    pool: EnvironmentPool
    sink: EventSink
    monitor: Monitor = field(init=False)
    _queue: deque[Owed] = field(init=False)
    _failed_in_a_row: list[Trajectory] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Line up what is owed."""
        self.monitor = Monitor(self.plan)
        self._queue = deque(self.plan.owed)

    async def execute(self, watch: Awaitable[None] | None = None) -> dict[str, Any]:
        """Run everything that is owed and return the summary event.

        `watch` raises when something that all episodes need has died; the rollout then stops at once. Raises
        `WebGymError` when nothing could be collected.
        """
        workers = min(self.settings.rollout.concurrency, len(self._queue))
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(_watch(watch)) if watch is not None else None
                running = [group.create_task(self._work()) for _ in range(workers)]
                await asyncio.gather(*running)
                if watcher:
                    watcher.cancel()
        except* (WebGymError, OSError) as errors:  # OSError: the reader of our events is gone
            raise errors.exceptions[0] from None
        return self._summary()

    async def _work(self) -> None:
        while self._queue:
            owed = self._queue.popleft()
            trajectory = await self._attempt(owed)
            self._judge_health(trajectory)
            failure = trajectory.outcome.failure
            if failure and owed.failures + 1 < self.settings.rollout.max_attempts:
                self._queue.append(Owed(owed.episode, owed.attempt + 1, owed.failures + 1))

    async def _attempt(self, owed: Owed) -> Trajectory:
        environment = self.pool.new()
        episode = EpisodeRun(owed, self.actor, environment, ScreenshotStore(self.run.screenshots), self.settings)
        started_at, start = now(), time.monotonic()
        try:
            trajectory = await episode.run()
        except asyncio.CancelledError:
            self._store(episode.cancelled(started_at, time.monotonic() - start))
            raise
        finally:
            await environment.close()
        self._store(trajectory)
        return trajectory

    def _store(self, trajectory: Trajectory) -> None:
        append(self.run, trajectory)
        self.sink(self.monitor.take(trajectory))

    def _judge_health(self, trajectory: Trajectory) -> None:
        if trajectory.outcome.failure is None:
            self._failed_in_a_row.clear()
            return
        self._failed_in_a_row.append(trajectory)
        if len(self._failed_in_a_row) >= max(HOPELESS_AFTER, self.settings.rollout.concurrency):
            last = trajectory.outcome
            raise WebGymError(
                f"{len(self._failed_in_a_row)} episodes in a row failed: {last.failure}: {last.failure_detail}",
                hint="webgym doctor, then run the same command again: what is stored stays",
            )

    def _summary(self) -> dict[str, Any]:
        plan = self.plan
        stored = [found for found in scan(self.run, plan.split, plan.iteration) if found.outcome.failure is None]
        if not stored:
            kinds = ", ".join(f"{count} x {kind}" for kind, count in self.monitor.failures.items())
            raise WebGymError(f"no episode could be collected: {kinds}", hint="webgym doctor")
        return {
            "event": "rollout",
            "split": plan.split,
            "iteration": plan.iteration,
            "policy": self.actor.name,
            **tally(stored),
            "owed": len(plan.episodes) - len({found.episode for found in stored}),
            **self.monitor.summary(),
        }


async def _watch(watch: Awaitable[None]) -> None:
    await watch
