"""Counters of a running rollout, its events, and its status file for `webgym status`."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from webgym_cli.errors import StoreError
from webgym_cli.records.events import EpisodeEvent, EventSink, make_event
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.statistics import mean, ratio, round_wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.rollout.stage_timer import StageTimer, merge_timings
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.status import RolloutState, write_status
from webgym_cli.util.optional import when

_REASONS = 20
# Interval of the reports, in seconds.
_BEAT_SECONDS = 1.0


@dataclass(slots=True)
class Monitor:
    """The counters of one rollout command."""

    plan: RolloutPlan
    """The newest plan."""
    slots: int
    """Episodes that can run at once."""
    worker_timings: Callable[[], list[dict[str, Any]]] = list
    """Returns the timings of workers in other processes."""
    stages: StageTimer = field(default_factory=StageTimer)
    """Times the stages of this process's episodes."""
    started: float = field(init=False)
    started_at: str = field(default_factory=now)
    """ISO 8601, UTC."""
    counts: Counter[str] = field(default_factory=Counter)
    """`collected`: episodes that ended without a failure, with a reward (`known`), with success (`successes`); `judged`
    and `given_up` ones; `steps` of all stored trajectories; `withdrawn`: earlier commands' trajectories whose judgement
    failed now, so that their episodes are owed again."""
    failures: Counter[str] = field(default_factory=Counter)
    skip_reasons: Counter[str] = field(default_factory=Counter)
    """Episodes that are not run because their site is on the blocklist."""
    queues: dict[str, int] = field(default_factory=dict)
    """Depth by name."""
    _planned: Counter[str] = field(default_factory=Counter)
    """Episodes of all plans: their `total`, and `owed`, `given_up` and `done` ones."""
    _cases: defaultdict[object, list[bool]] = field(default_factory=lambda: defaultdict(list))
    """Successes by case: repeats of a test task are no independent trials."""
    _unjudged: set[str] = field(default_factory=set)
    _other_models: set[str | None] = field(default_factory=lambda: {None})
    _acted: float = field(init=False)
    """Time at which the last episode released its slot."""

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self._acted = self.stages.clock()
        self.add_plan(self.plan)

    def add_plan(self, plan: RolloutPlan) -> None:
        """Count the episodes of a plan, which is shown from now on."""
        self.plan = plan
        counts = {"total": len(plan.episodes), "owed": len(plan.owed), "given_up": plan.given_up, "done": plan.done}
        self._planned.update(counts)

    def record_stored(self, trajectory: Trajectory) -> EpisodeEvent:
        """Count a stored trajectory, mark its slot as released and return its event."""
        self.stages.end(trajectory.episode)
        self._acted = self.stages.clock()
        outcome = trajectory.outcome
        self.counts["steps"] += len(trajectory.steps)
        if outcome.failure:
            self.failures[outcome.failure.value] += 1
        else:
            self.counts["collected"] += 1
            self._count_reward(trajectory)
            if outcome.success is None:
                self._unjudged.add(trajectory.id)
        return self._event("trajectory", trajectory)

    def find_other_models(self, trajectory: Trajectory) -> list[str]:
        """Return the models that servers named instead of the requested one, each once per rollout."""
        named = {step.generation.other_model for step in trajectory.steps} - self._other_models
        self._other_models |= named
        return sorted(str(model) for model in named)

    def record_judged(self, trajectory: Trajectory) -> EpisodeEvent:
        """Count a trajectory whose outcome contains its judgement, and return its event.

        If the judgement failed or found the site blocked, the episode is owed again.
        """
        self.counts["judged"] += 1
        mine = trajectory.id in self._unjudged
        self._unjudged.discard(trajectory.id)
        if trajectory.outcome.failure:
            self.failures[trajectory.outcome.failure.value] += 1
            self.counts["collected"] -= mine
            self.counts["withdrawn"] += not mine
        else:
            self._count_reward(trajectory)
        return self._event("judged", trajectory)

    def _count_reward(self, trajectory: Trajectory) -> None:
        if (success := trajectory.outcome.success) is not None:
            self._cases[trajectory.case].append(success)
            self.counts["known"] += 1
            self.counts["successes"] += success

    def _event(self, name: str, trajectory: Trajectory) -> EpisodeEvent:
        outcome = trajectory.outcome
        return {
            "event": name,
            "id": trajectory.id,
            "task": trajectory.task.id,
            "reward": outcome.reward,
            "stop": outcome.stop,
            "failure": outcome.failure,
            "failure_detail": outcome.failure_detail or None,
            "steps": len(trajectory.steps),
            "seconds": trajectory.seconds,
            "bar": f"{trajectory.split} {trajectory.iteration}",
            "done": self._done,
            "total": self._planned["total"],
        }

    @property
    def _done(self) -> int:
        """Number of planned episodes with a final trajectory."""
        return self._planned["done"] + self.counts["collected"] - self.counts["withdrawn"]

    def snapshot(self) -> dict[str, Any]:
        """Return all values of the live view, JSON-serializable. Times are in seconds.

        `success_rate` and its 95 % `interval` cover this command's episodes with a known reward; `eta` is None before
        the first episode has ended.
        """
        elapsed, timings, counts = self.stages.clock() - self.started, self.worker_timings(), self.counts
        cases, skipped = [*map(fmean, self._cases.values())], self.skip_reasons.total()
        ended = counts["collected"] - counts["withdrawn"] + counts["given_up"] + skipped
        left = max(0, self._planned["owed"] - ended)
        return {
            "ranks": max(1, len(timings)),
            "split": self.plan.split.value,
            "iteration": self.plan.iteration,
            "policy": self.plan.policy,
            "bar": f"{self.plan.split} {self.plan.iteration}",
            "started_at": self.started_at,
            "elapsed": round(elapsed, 2),
            "slots": self.slots,
            "total": self._planned["total"],
            "done": self._done,
            **{name: counts[name] for name in ("collected", "known", "successes", "steps", "judged")},
            "success_rate": mean(cases),
            "interval": round_wilson(math.fsum(cases), len(cases)),
            "given_up": self._planned["given_up"] + counts["given_up"],
            "steps_per_second": round(counts["steps"] / max(1.0, elapsed), 2),
            "eta": ratio(left * elapsed, counts["collected"], 1) if left else 0.0,
            "unjudged": len(self._unjudged),
            "skipped": skipped,
            "cut": self.failures[FailureKind.CANCELLED],
            "queues": dict(self.queues),
            "failures": dict(sorted(self.failures.items())),
            **merge_timings([self.stages.timings(), *timings]),
        }

    def summary(self) -> dict[str, Any]:
        """Return the summary of this command's own episodes.

        `judge_tail_seconds`: time from the end of the last episode to the end of judging.
        """
        counted, tail = self.snapshot(), self.stages.clock() - self._acted
        names = ("collected", "steps", "steps_per_second", "failures", "skipped", "cut", "judged")
        facts = {name: counted[name] for name in names} | {
            "seconds": counted["elapsed"],
            "skip_reasons": dict(self.skip_reasons.most_common(_REASONS)),
            "judge_tail_seconds": when(counted["judged"], round(tail, 2)),
            "stages": {
                name: {key: value for key, value in stage.items() if key != "now"}
                for name, stage in counted["stages"].items()
            },
        }
        if counted["servers"]:
            facts["servers"] = counted["servers"]
        return facts


@dataclass(slots=True)
class Heartbeat:
    """The heartbeat of one rollout."""

    run: RunDir
    monitor: Monitor
    sink: EventSink

    async def beat(self) -> None:
        """Report periodically until cancelled."""
        while True:
            self._report(RolloutState.RUNNING)
            await asyncio.sleep(_BEAT_SECONDS)

    @contextmanager
    def record_end(self) -> Iterator[None]:
        """Write the final state of the rollout when the block ends."""
        state = RolloutState.FAILED
        try:
            yield
            state = RolloutState.FINISHED
        except (asyncio.CancelledError, KeyboardInterrupt):
            state = RolloutState.INTERRUPTED
            raise
        finally:
            self._report(state)

    def _report(self, state: RolloutState) -> None:
        snapshot = self.monitor.snapshot()
        if state is RolloutState.RUNNING:
            self.sink(make_event("status", transient=True, **snapshot))
        with suppress(StoreError):  # a full disk is reported when trajectories are stored
            write_status(self.run, snapshot, state)
