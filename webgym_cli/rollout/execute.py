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
from webgym_cli.records.trajectory import Outcome, Trajectory
from webgym_cli.rollout.actors import Actor
from webgym_cli.rollout.admission import slots
from webgym_cli.rollout.episode import EpisodeRun
from webgym_cli.rollout.monitor import Monitor, tally
from webgym_cli.rollout.plan import Owed, RolloutPlan
from webgym_cli.store.buffer import append, scan
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.screenshots import ScreenshotStore

HOPELESS_AFTER = 8
"""So many failures in a row, and as many as run at once, end the rollout: something is down, retrying is no use."""
LAST_WORD = 3.0
"""Seconds for `watch` to tell that the server died: a better reason to end than failures in a row."""


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
    _slots: int = field(init=False)
    _failed_in_a_row: int = 0
    _retried: set[str] = field(default_factory=set)
    _watched: bool = False

    def __post_init__(self) -> None:
        """Line up what is owed."""
        self.monitor = Monitor(self.plan, slots(self.settings.rollout))
        self._slots = slots(self.settings.rollout)
        self._queue = deque(self.plan.owed)

    async def execute(self, watch: Awaitable[None] | None = None) -> dict[str, Any]:
        """Run everything that is owed and return the summary event.

        `watch` raises when something that all episodes need has died; the rollout then stops at once. Raises
        `WebGymError` when nothing could be collected.
        """
        self._watched = watch is not None
        workers = min(self._slots, len(self._queue))
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
            if self._hopeless(trajectory, again=owed.episode.id in self._retried):
                error = self._broken(trajectory.outcome)
                if self._watched:
                    await asyncio.sleep(LAST_WORD)
                raise error
            failure = trajectory.outcome.failure
            if failure and owed.failures + 1 < self.settings.rollout.max_attempts:
                self._retried.add(owed.episode.id)
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

    def _hopeless(self, trajectory: Trajectory, *, again: bool) -> bool:
        """Count failures in a row and tell whether there are too many.

        One that failed again says little: what fails for good, a broken page for one, gathers at the queue's end.
        """
        self._failed_in_a_row = self._failed_in_a_row + (not again) if trajectory.outcome.failure else 0
        return self._failed_in_a_row >= max(HOPELESS_AFTER, self._slots)

    def _broken(self, last: Outcome) -> WebGymError:
        return WebGymError(
            f"{self._failed_in_a_row} episodes in a row failed: {last.failure}: {last.failure_detail}",
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
