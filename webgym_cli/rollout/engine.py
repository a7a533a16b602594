"""The rollout engine: runs pending episodes concurrently and stores each trajectory as it ends."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from webgym_cli.config.model import Settings
from webgym_cli.environments.registry import claim_sites
from webgym_cli.errors import WebGymError
from webgym_cli.jobs.budget import Budget, Work
from webgym_cli.jobs.workers import MAX_CONSECUTIVE_FAILURES, task_group
from webgym_cli.records.events import EventSink, RolloutSummary, make_event
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.judging import JudgeQueue, TrajectoryJudge
from webgym_cli.rollout.monitor import Heartbeat, Monitor
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan
from webgym_cli.rollout.queue import EpisodeQueue, ResourceClaims
from webgym_cli.rollout.runner import LocalRunner
from webgym_cli.rollout.stage_timer import EpisodeStage
from webgym_cli.rollout.summary import advise, summarize
from webgym_cli.store.buffer import append
from webgym_cli.store.metrics import Blocklist
from webgym_cli.store.run import RunDir
from webgym_cli.util.urls import site_of

if TYPE_CHECKING:
    from webgym_cli.rollout.ray_driver import RayRunner

# Raises when a shared resource, such as the policy server, has died.
Watch = Coroutine[Any, Any, None]
# Seconds for `watch` to raise first: a dead server is a better explanation than consecutive failures.
WATCH_GRACE = 3.0


@dataclass(slots=True)
class RolloutEngine:
    """One rollout engine: runs a whole rollout, or one Ray worker's part of it."""

    plan: RolloutPlan
    run: RunDir
    settings: Settings
    runner: LocalRunner | RayRunner
    """Runs the attempts, here or on other nodes."""
    sink: EventSink
    judge: TrajectoryJudge | None = None
    """Judges trajectories that the environment can't score; None: they stay unscored."""
    queue: EpisodeQueue | None = None
    """Source of the episodes; None: the plan's pending episodes."""
    claims: ResourceClaims | None = None
    """Exclusive resources shared with other rollouts of this process; None: there are no others."""
    on_outcome: Callable[[Trajectory, bool], None] = lambda trajectory, judged: None
    """Called with each trajectory when it is stored, and again, with its judgement, when that is stored; the second
    argument is true for the second call."""
    budget: Budget = field(default_factory=Budget)
    monitor: Monitor = field(init=False)
    _queue: EpisodeQueue = field(init=False)
    _blocklist: Blocklist = field(init=False)
    _judge_queue: JudgeQueue | None = None
    _group: asyncio.TaskGroup | None = None
    _loops: set[asyncio.Task[None]] = field(default_factory=set)
    _consecutive_failures: int = 0
    _failed: Counter[str] = field(default_factory=Counter)
    """Failed attempts of this command by episode id."""
    _watched: bool = False
    _done: int = 0
    _threshold: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Create queue, monitor and limits."""
        runner = self.runner
        self.monitor = Monitor(self.plan, runner.slots, runner.worker_timings, runner.stages)
        runner.on_slots_added = self._add_slots
        self._queue = self.queue or EpisodeQueue(self.plan.owed, self.claims or make_claims(self.settings))
        self._blocklist = Blocklist(self.run, self.settings.rollout.blocklist_hours)
        if self.judge:
            # A queue that waits for judgements, as an asynchronous loop's does, would wait for ever.
            parts = (self.judge, self.run, self.monitor, self._on_judged, self.budget)
            self._judge_queue = JudgeQueue(*parts, on_refused=self._queue.end)

    async def execute(self, watch: Watch | None = None, unjudged: Iterable[Trajectory] = ()) -> RolloutSummary:
        """Run all pending episodes and return the summary event.

        `watch` raises when a shared resource (the policy server) has died, which ends the rollout. `unjudged`:
        stored trajectories that still need a judgement. Raises `WebGymError` when nothing could be collected.
        """
        await self.run_all(watch, unjudged)
        summary = summarize(self.run, self.plan, self.monitor, self.judge_down)
        return cast(RolloutSummary, {**summary, **self.runner.facts()})

    async def run_all(self, watch: Watch | None = None, unjudged: Iterable[Trajectory] = ()) -> None:
        """Run all pending episodes, without a summary; parameters and errors as those of `execute`."""
        self._watched = watch is not None
        heartbeat = Heartbeat(self.run, self.monitor, self.sink)
        with heartbeat.record_end():
            async with task_group() as group:
                background = [group.create_task(heartbeat.beat()), *self._start_judges(group, unjudged)]
                if watch is not None:
                    background.append(group.create_task(watch))
                if self.settings.rollout.completion_threshold < 1:
                    background.append(group.create_task(self._stop_early_after_threshold()))
                self._group = group
                self._start_loops(self.monitor.slots)
                while running := [loop for loop in self._loops if not loop.done()]:
                    await asyncio.wait(running)
                # Only now: the last episode to end may still be queued for the judge.
                if self._judge_queue:
                    await self._judge_queue.drain()
                for task in background:
                    task.cancel()
        self.budget.require()

    def _start_judges(self, group: asyncio.TaskGroup, unjudged: Iterable[Trajectory]) -> list[asyncio.Task[None]]:
        if self._judge_queue is None:
            return []
        for trajectory in unjudged:
            self._judge_queue.put(trajectory)
        return [group.create_task(self._judge_queue.work()) for _ in range(self.settings.judge.concurrency)]

    def _add_slots(self, count: int) -> None:
        self.monitor.slots += count
        self._start_loops(count)

    def _start_loops(self, count: int) -> None:
        if self._group is not None:
            if not self.queue:
                count = min(count, max(1, len(self.plan.owed)))
            self._loops |= {self._group.create_task(self._work_through_queue()) for _ in range(count)}

    async def _work_through_queue(self) -> None:
        while not self._stopping.is_set() and (owed := await self._queue.take()):
            self.monitor.queues["owed"] = self._queue.depth()
            # Without blocked sites the list of registrable domains, 0.1 s to read, is not needed.
            blocked = self._blocklist.sites()
            if blocked and (site := site_of(owed.episode.task.start_url)) in blocked:
                self.monitor.skip_reasons[f"{site} is on the blocklist"] += 1
                await self._finish(owed)
                continue
            # A task of its own: the runner cancels it alone when the rollout stops early.
            async with self.budget.admit(Work.EPISODE) as fits:
                trajectory = await asyncio.create_task(self._run_attempt(owed)) if fits else None
            if trajectory is None:
                self._queue.end()  # others may wait for what this episode holds
                return
            if self._too_many_failures(trajectory, again=self._failed[owed.episode.id] > 0):
                failures, last = self._consecutive_failures, trajectory.outcome
                # The watcher of the policy server may know the cause: let it raise first.
                if self._watched:
                    await asyncio.sleep(WATCH_GRACE)
                message = f"{failures} episodes in a row failed: {last.failure}: {last.failure_detail}"
                raise WebGymError(message, hint=advise(last.failure))
            await self._retry_or_finish(owed, trajectory)

    async def _retry_or_finish(self, owed: PendingEpisode, trajectory: Trajectory) -> None:
        """Requeue an episode whose failure is retryable; otherwise mark it as done."""
        failure = trajectory.outcome.failure
        if failure is not None and failure.retryable and not self._stopping.is_set():
            self._failed[owed.episode.id] += 1
            failures = owed.failures + failure.counts_as_attempt
            # An attempt that does not count for later commands ends the retries of this one, too.
            if max(failures, self._failed[owed.episode.id]) < self.settings.rollout.max_attempts:
                await self._queue.give_back(PendingEpisode(owed.episode, owed.attempt + 1, failures))
                return
            if failures >= self.settings.rollout.max_attempts:
                self.monitor.counts["given_up"] += 1
        elif failure is not None and failure.counts_as_attempt and not failure.retryable:
            self.monitor.counts["given_up"] += 1
        await self._finish(owed)

    async def _finish(self, owed: PendingEpisode) -> None:
        await self._queue.finish(owed)
        self._done += 1
        if self._done >= math.ceil(self.settings.rollout.completion_threshold * len(self.plan.owed)):
            self._threshold.set()

    async def _run_attempt(self, owed: PendingEpisode) -> Trajectory | None:
        """Run one attempt and store its trajectory; None when the rollout was stopped before it began."""
        if self._stopping.is_set() or (trajectory := await self.runner.run(owed)) is None:
            return None
        self._store(trajectory)
        if trajectory.outcome.failure is FailureKind.CANCELLED and not self._stopping.is_set():
            raise asyncio.CancelledError  # the command was interrupted: only the storing was still to do
        return trajectory

    def _store(self, trajectory: Trajectory) -> None:
        with self.monitor.stages.time(trajectory.episode, EpisodeStage.STORE):
            append(self.run, trajectory)
        self.budget.charge(Work.EPISODE, [(self.settings.policy_models, trajectory.tokens)])
        self.sink(self.monitor.record_stored(trajectory))
        self.on_outcome(trajectory, False)
        for model in self.monitor.find_other_models(trajectory):
            self.sink(make_event("note", message=f"the policy server answers as {model!r}, which was not requested"))
        if trajectory.outcome.failure is FailureKind.SITE_BLOCKED:
            self._block_site(trajectory)
        elif trajectory.outcome.failure is FailureKind.INTERNAL_ERROR:
            message = f"{trajectory.id} failed unexpectedly: {trajectory.outcome.failure_detail}"
            self.sink(make_event("note", message=message))
        elif self._judge_queue and trajectory.awaits_judgement:
            self._judge_queue.put(trajectory)

    def _on_judged(self, trajectory: Trajectory, judgement: Judgement) -> None:
        self.sink(self.monitor.record_judged(trajectory))
        self.on_outcome(trajectory, True)
        if judgement.failure is FailureKind.SITE_BLOCKED:
            self._block_site(trajectory)

    def _block_site(self, trajectory: Trajectory) -> None:
        """Add the last visited site, which blocked the browser, to the blocklist; it may not be the start page's."""
        url = next((step.observation.url for step in reversed(trajectory.steps)), trajectory.task.start_url)
        block = self._blocklist.add(url, trajectory.id, trajectory.outcome.failure_detail)
        if block:
            message = f"{block.site} shut the browser out: left out until {block.expires_at:%Y-%m-%d %H:%M} UTC"
            self.sink(make_event("blocked", **block.model_dump(mode="json"), message=message))

    async def _stop_early_after_threshold(self) -> None:
        """Stop early once `completion_threshold` is reached and `completion_grace` has passed."""
        await self._threshold.wait()
        await asyncio.sleep(self.settings.rollout.completion_grace)
        self.stop_early()

    def stop_early(self) -> None:
        """Stop now: running episodes are stored as cancelled, waiting ones stay owed."""
        self._stopping.set()
        self._queue.end()
        self.runner.stop()

    def _too_many_failures(self, trajectory: Trajectory, *, again: bool) -> bool:
        """Count consecutive failures and return whether the limit is reached."""
        # A repeated failure of the same episode does not count: episodes that always fail gather at the queue's end.
        # Neither do blocked sites and cancelled episodes: they are no fault of browser, server or judge.
        failure = trajectory.outcome.failure
        if failure is not None and not failure.may_recur:
            return False
        if failure is None:
            self._consecutive_failures = 0
        elif not again:
            self._consecutive_failures += 1
        return self._consecutive_failures >= max(MAX_CONSECUTIVE_FAILURES, self.monitor.slots)

    @property
    def judge_down(self) -> str:
        """Error of an unavailable judge; empty while it responds."""
        return self._judge_queue.down if self._judge_queue else ""


def make_claims(settings: Settings) -> ResourceClaims:
    """Return the claims of episodes to their environments' exclusive resources."""
    return ResourceClaims(partial(claim_sites, settings))
