"""Runs the owed episodes: so many at once, none waiting for another, one line stored as each ends."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.webarena.site_scheduler import exclusive_sites
from webgym_cli.errors import WebGymError
from webgym_cli.records.events import EventSink
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.trajectory import Outcome, Trajectory
from webgym_cli.rollout.agents import Actor, servers_of
from webgym_cli.rollout.episode import EpisodeRun
from webgym_cli.rollout.judging import JudgeLine, TrajectoryJudge
from webgym_cli.rollout.memory_limiter import Admission, slots
from webgym_cli.rollout.monitoring.heartbeat import Heartbeat
from webgym_cli.rollout.monitoring.monitor import EpisodeStage, Monitor, tally
from webgym_cli.rollout.plan import Owed, RolloutPlan
from webgym_cli.rollout.queue import EpisodeQueue, LocalQueue
from webgym_cli.store.blocklist import Blocklist
from webgym_cli.store.buffer import append, scan
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tasks.site import site_of

HOPELESS_AFTER = 8
"""So many failures in a row, and as many as run at once, end the rollout: something is down, retrying is no use."""
LAST_WORD = 3.0
"""Seconds for `watch` to tell that the server died: a better reason to end than failures in a row."""


@dataclass(slots=True)
class Rollout:
    """One engine at work: all of a rollout, or one rank's part of it."""

    plan: RolloutPlan
    run: RunDir
    settings: Settings
    actor: Actor
    pool: EnvironmentPool | None
    """Makes the environments; None: there is nothing to run."""
    sink: EventSink
    judge: TrajectoryJudge | None = None
    """Gives the rewards that the environment can't; None: they stay unknown."""
    rank: int = 0
    """Names the part files that this engine writes."""
    queue: EpisodeQueue | None = None
    """Where the episodes come from; None: all that the plan owes."""
    monitor: Monitor = field(init=False)
    _queue: EpisodeQueue = field(init=False)
    _slots: int = field(init=False)
    _admission: Admission = field(init=False)
    _blocklist: Blocklist = field(init=False)
    _line: JudgeLine | None = field(init=False)
    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _failed_in_a_row: int = 0
    _retried: set[str] = field(default_factory=set)
    _watched: bool = False
    _done: int = 0
    _threshold: asyncio.Event = field(default_factory=asyncio.Event)
    _cutting: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Line up what is owed."""
        self._slots = slots(self.settings.rollout)
        self.monitor = Monitor(self.plan, self._slots, self.rank, servers=servers_of(self.actor))
        self._queue = self.queue or LocalQueue(self.plan.owed, partial(exclusive_sites, self.settings))
        self._admission = Admission(self.settings.browser.memory_reserve_mb)
        self._blocklist = Blocklist(self.run, self.settings.rollout.blocklist_hours)
        self._line = JudgeLine(self.judge, self.run, self.monitor, self.rank, self._judged) if self.judge else None

    async def execute(
        self, watch: Awaitable[None] | None = None, unjudged: Iterable[Trajectory] = ()
    ) -> dict[str, Any]:
        """Run everything that is owed and return the summary event.

        `watch` raises when something that all episodes need has died; the rollout then stops at once. `unjudged`:
        stored trajectories that still wait for their judgement. Raises `WebGymError` when nothing could be collected.
        """
        await self.collect(watch, unjudged)
        return summarise(self.run, self.plan, self.actor.name, self.monitor, self.judge_down)

    async def collect(self, watch: Awaitable[None] | None = None, unjudged: Iterable[Trajectory] = ()) -> None:
        """Run everything that comes, as `execute` does, without summing up."""
        self._watched = watch is not None
        heartbeat = Heartbeat(self.run, self.monitor, self.sink)
        try:
            with heartbeat.last_word():
                async with asyncio.TaskGroup() as group:
                    beside = [group.create_task(heartbeat.beat()), *self._judges(group, unjudged)]
                    if watch is not None:
                        beside.append(group.create_task(_watch(watch)))
                    if self.settings.rollout.completion_threshold < 1:
                        beside.append(group.create_task(self._cut()))
                    workers = self._slots if self.queue else min(self._slots, max(1, len(self.plan.owed)))
                    await asyncio.gather(*(group.create_task(self._work()) for _ in range(workers)))
                    if self._line:
                        await self._line.drain()
                    for task in beside:
                        task.cancel()
        except* (WebGymError, OSError) as errors:  # OSError: the reader of our events is gone
            raise errors.exceptions[0] from None

    def _judges(self, group: asyncio.TaskGroup, unjudged: Iterable[Trajectory]) -> list[asyncio.Task[None]]:
        if self._line is None:
            return []
        for trajectory in unjudged:
            self._line.put(trajectory)
        return [group.create_task(self._line.work()) for _ in range(self.settings.judge.concurrency)]

    async def _work(self) -> None:
        while not self._cutting.is_set() and (owed := await self._queue.take()):
            self.monitor.queue("owed", self._queue.depth())
            if (site := site_of(owed.episode.task.start_url)) in self._blocklist.sites():
                self.monitor.skipped(owed, f"{site} is on the blocklist")
                await self._finish(owed)
                continue
            trajectory = await self._admitted(owed)
            if trajectory is None:
                return
            if self._hopeless(trajectory, again=owed.episode.id in self._retried):
                error = self._broken(trajectory.outcome)
                if self._watched:
                    await asyncio.sleep(LAST_WORD)
                raise error
            await self._after(owed, trajectory)

    async def _after(self, owed: Owed, trajectory: Trajectory) -> None:
        """Have an episode tried again where that may help, else count it as done."""
        failure = trajectory.outcome.failure
        retry = failure is not None and failure.retryable and not self._cutting.is_set()
        if retry and owed.failures + 1 < self.settings.rollout.max_attempts:
            self._retried.add(owed.episode.id)
            await self._queue.give_back(Owed(owed.episode, owed.attempt + 1, owed.failures + 1))
            return
        await self._finish(owed)

    async def _finish(self, owed: Owed) -> None:
        await self._queue.finish(owed)
        self._done += 1
        if self._done >= math.ceil(self.settings.rollout.completion_threshold * len(self.plan.owed)):
            self._threshold.set()

    async def _admitted(self, owed: Owed) -> Trajectory | None:
        """Run an episode once the machine has room; None when the round was cut before that."""
        with self.monitor.stage(owed.episode.id, EpisodeStage.ADMISSION):
            await self._admission.enter()
        try:
            return await asyncio.create_task(self._attempt(owed))
        finally:
            self._admission.leave()

    async def _attempt(self, owed: Owed) -> Trajectory | None:
        if self.pool is None:
            raise RuntimeError("an episode without environments")
        if self._cutting.is_set():
            return None
        self.monitor.begin(owed)
        environment = self.pool.new()
        store = ScreenshotStore(self.run.screenshots)
        episode = EpisodeRun(owed, self.actor, environment, store, self.settings, self.monitor)
        started_at, start = now(), time.monotonic()
        try:
            with self._cuttable():
                trajectory = await episode.run()
        except asyncio.CancelledError:
            trajectory = episode.cancelled(started_at, time.monotonic() - start)
            self._store(trajectory)
            if not self._cutting.is_set():
                raise
            self.monitor.cut(trajectory)
        else:
            self._store(trajectory)
        finally:
            await environment.close()
        return trajectory

    @contextmanager
    def _cuttable(self) -> Iterator[None]:
        """Let the current episode be cut: only while it plays, not while it is stored and its browser closed."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an episode outside of a task")
        self._running.add(task)
        try:
            yield
        finally:
            self._running.discard(task)

    def _store(self, trajectory: Trajectory) -> None:
        with self.monitor.stage(trajectory.episode, EpisodeStage.STORE):
            append(self.run, trajectory, self.rank)
        self.sink(self.monitor.take(trajectory))
        if trajectory.outcome.failure is FailureKind.SITE_BLOCKED:
            self._block(trajectory)
        elif self._line and trajectory.awaits_judgement:
            self._line.put(trajectory)

    def _judged(self, trajectory: Trajectory, judgement: Judgement) -> None:
        self.sink(self.monitor.judged(trajectory))
        if judgement.failure is FailureKind.SITE_BLOCKED:
            self._block(trajectory)

    def _block(self, trajectory: Trajectory) -> None:
        """Leave out the site from now on: the one that was met last, as it may not be the start page's."""
        url = trajectory.steps[-1].observation.url if trajectory.steps else trajectory.task.start_url
        block = self._blocklist.add(url, trajectory.id, trajectory.outcome.failure_detail)
        if block:
            message = f"{block.site} shut the browser out: left out until {block.expires_at:%Y-%m-%d %H:%M} UTC"
            self.sink({"event": "blocked", **block.model_dump(mode="json"), "message": message})

    async def _cut(self) -> None:
        """Once enough is done, give the rest its grace and then end the round."""
        await self._threshold.wait()
        await asyncio.sleep(self.settings.rollout.completion_grace)
        self.cut()

    def cut(self) -> None:
        """End the round now: what runs is stored as cancelled, nothing further is begun."""
        self._cutting.set()
        self._queue.end()
        for episode in tuple(self._running):
            episode.cancel()

    def _hopeless(self, trajectory: Trajectory, *, again: bool) -> bool:
        """Count failures in a row and tell whether there are too many.

        One that failed again says little: what fails for good, a broken page for one, gathers at the queue's end. A
        site that shuts us out, or an episode that we cut, says nothing of our own parts.
        """
        failure = trajectory.outcome.failure
        if failure is not None and not failure.retryable:
            return False
        self._failed_in_a_row = self._failed_in_a_row + (not again) if failure else 0
        return self._failed_in_a_row >= max(HOPELESS_AFTER, self._slots)

    def _broken(self, last: Outcome) -> WebGymError:
        return WebGymError(
            f"{self._failed_in_a_row} episodes in a row failed: {last.failure}: {last.failure_detail}",
            hint="webgym doctor, then run the same command again: what is stored stays",
        )

    @property
    def judge_down(self) -> str:
        """Why the judge was given up; empty while it answers."""
        return self._line.down if self._line else ""


def summarise(run: RunDir, plan: RolloutPlan, policy: str, monitor: Monitor, judge_down: str = "") -> dict[str, Any]:
    """Return the summary event of the iteration so far. Raises `WebGymError` when nothing was collected or judged."""
    if judge_down:
        raise WebGymError(
            f"the judge does not answer: {judge_down}", hint=f"webgym judge {run.root} once it does: all is stored"
        )
    rolled_out = (None, FailureKind.JUDGE_FAILED)
    collected = [found for found in scan(run, plan.split, plan.iteration) if found.outcome.failure in rolled_out]
    stored = [found for found in collected if found.outcome.failure is None]
    if collected and not stored:
        raise WebGymError(
            f"none of the {len(collected)} collected episodes could be judged: {collected[-1].outcome.failure_detail}",
            hint=f"check judge.base_url and judge.model, then webgym judge {run.root}: all is stored",
        )
    if not collected and not monitor.skipped_by_site:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in monitor.failures.items())
        raise WebGymError(f"no episode could be collected: {kinds or 'all are given up'}", hint="webgym doctor")
    return {
        "event": "rollout",
        "split": plan.split,
        "iteration": plan.iteration,
        "policy": policy,
        **tally(stored),
        "owed": len(plan.episodes) - len({found.episode for found in collected}),
        **monitor.summary(),
    }


async def _watch(watch: Awaitable[None]) -> None:
    await watch
