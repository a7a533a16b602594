"""Counters of a running rollout, its events, and its status file for `webgym status`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from webgym_cli.agent.client.reply import ServerCounters
from webgym_cli.errors import StoreError
from webgym_cli.records.events import CommandFacts, EpisodeEvent, EventSink, RewardFacts, make_event
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.statistics import wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.latency import Rate
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.rollout.snapshot import complete, merge_timings
from webgym_cli.rollout.stage_timer import StageTimer
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.status import RolloutState, write_status

_REASONS = 20
# Interval of the reports, in seconds.
_BEAT_SECONDS = 1.0
# Window of the episode rate, from which the ETA follows, in seconds.
_EPISODE_RATE_SECONDS = 300.0


@dataclass(slots=True)
class Monitor:
    """The counters of one rollout command."""

    plan: RolloutPlan
    slots: int
    """Episodes that can run at once."""
    servers: Callable[[], ServerCounters] = dict
    """Returns the request counters of the policy servers; empty with a single server."""
    worker_timings: Callable[[], list[dict[str, Any]]] = list
    """Returns the timings of workers in other processes."""
    stages: StageTimer = field(default_factory=StageTimer)
    """Times the stages of this process's episodes."""
    started: float = field(init=False)
    started_at: str = field(default_factory=now)
    """ISO 8601, UTC."""
    finished: int = 0
    """Number of episodes that ended without a failure."""
    known: int = 0
    """Number of episodes with a reward."""
    successes: int = 0
    steps: int = 0
    """Sum over all stored trajectories."""
    judgements: int = 0
    """Number of judged trajectories."""
    failures: Counter[str] = field(default_factory=Counter)
    skip_reasons: Counter[str] = field(default_factory=Counter)
    """Episodes that are not run because their site is on the blocklist."""
    queues: dict[str, int] = field(default_factory=dict)
    """Depth by name."""
    given_up: int = 0
    """Number of episodes given up by this command."""
    _unjudged: set[str] = field(default_factory=set)
    _other_models: set[str | None] = field(default_factory=lambda: {None})
    _withdrawn: int = 0
    """Number of earlier commands' trajectories whose judgement failed now: their episodes are owed again."""
    _finishing: Rate = field(init=False)
    _acted: float = field(init=False)
    """Time at which the last episode released its slot."""

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self._acted = self.stages.clock()
        self._finishing = Rate(self.started, _EPISODE_RATE_SECONDS)

    def record_stored(self, trajectory: Trajectory) -> EpisodeEvent:
        """Count a stored trajectory, mark its slot as released and return its event."""
        self.stages.end(trajectory.episode)
        self._acted = self.stages.clock()
        outcome = trajectory.outcome
        self.steps += len(trajectory.steps)
        if outcome.failure:
            self.failures[outcome.failure.value] += 1
        else:
            self.finished += 1
            self._finishing.add(1, self._acted)
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
        self.judgements += 1
        mine = trajectory.id in self._unjudged
        self._unjudged.discard(trajectory.id)
        if trajectory.outcome.failure:
            self.failures[trajectory.outcome.failure.value] += 1
            self.finished -= mine
            self._withdrawn += not mine
        else:
            self._count_reward(trajectory)
        return self._event("judged", trajectory)

    def _count_reward(self, trajectory: Trajectory) -> None:
        self.known += trajectory.outcome.success is not None
        self.successes += bool(trajectory.outcome.success)

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
            "done": self.plan.done + self.finished - self._withdrawn,
            "total": len(self.plan.episodes),
        }

    def snapshot(self) -> dict[str, Any]:
        """Return all values of the live view, JSON-serializable. Times are in seconds."""
        now_ = self.stages.clock()
        timings = self.worker_timings()
        counted = {
            "rank": 0,
            "ranks": max(1, len(timings)),
            "split": self.plan.split.value,
            "iteration": self.plan.iteration,
            "policy": self.plan.policy,
            "bar": f"{self.plan.split} {self.plan.iteration}",
            "started_at": self.started_at,
            "elapsed": round(now_ - self.started, 1),
            "slots": self.slots,
            "total": len(self.plan.episodes),
            "owed": len(self.plan.owed) - self.given_up,
            "given_up": self.plan.given_up + self.given_up,
            "collected": self.finished,
            "withdrawn": self._withdrawn,
            "steps": self.steps,
            "episodes_per_second": round(self._finishing.per_second(now_), 5),
            "known": self.known,
            "successes": self.successes,
            "judged": self.judgements,
            "unjudged": len(self._unjudged),
            "skipped": self.skip_reasons.total(),
            "cut": self.failures[FailureKind.CANCELLED],
            "queues": dict(self.queues),
            "servers": self.servers(),
            "failures": dict(sorted(self.failures.items())),
            **merge_timings([self.stages.timings(), *timings]),
        }
        return complete(counted)

    def summary(self) -> CommandFacts:
        """Return the summary of this command's own episodes.

        `judge_tail_seconds`: time from the end of the last episode to the end of judging.
        """
        counted, end = self.snapshot(), self.stages.clock()
        seconds = end - self.started
        facts: CommandFacts = {
            "collected": self.finished,
            "steps": self.steps,
            "seconds": round(seconds, 2),
            "steps_per_second": round(self.steps / max(1e-9, seconds), 2),
            "failures": counted["failures"],
            "skipped": counted["skipped"],
            "skip_reasons": dict(self.skip_reasons.most_common(_REASONS)),
            "cut": counted["cut"],
            "judged": self.judgements,
            "judge_tail_seconds": round(end - self._acted, 2) if self.judgements else 0.0,
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


def summarize_rewards(trajectories: list[Trajectory]) -> RewardFacts:
    """Return success rate with 95 % Wilson interval over the trajectories with a known reward, and means.

    Means are of the reward, the steps, the calls of each tool, and each extra value of the reward functions (over the
    trajectories that have it).
    """
    known = [trajectory for trajectory in trajectories if trajectory.outcome.success is not None]
    successes = sum(bool(trajectory.outcome.success) for trajectory in known)
    extras: dict[str, list[float]] = {}
    calls: Counter[str] = Counter()
    for trajectory in known:
        calls.update(trajectory.count_calls())
        for name, value in trajectory.outcome.extras.items():
            extras.setdefault(name, []).append(value)
    rewards = [trajectory.outcome.reward for trajectory in known if trajectory.outcome.reward is not None]
    return {
        "episodes": len(known),
        "successes": successes,
        "success_rate": round(successes / len(known), 4) if known else None,
        "interval": [round(bound, 4) for bound in wilson(successes, len(known))],
        "mean_reward": round(fmean(rewards), 4) if known else None,
        "mean_steps": round(fmean(len(trajectory.steps) for trajectory in known), 2) if known else None,
        "reward_extra": {name: round(fmean(values), 4) for name, values in sorted(extras.items())},
        "tool_calls": {name: round(count / len(known), 2) for name, count in sorted(calls.items())},
    }
