"""Counters of a running rollout, and its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from webgym_cli.agent.client.reply import ServerCounters
from webgym_cli.records.events import CommandFacts, EpisodeEvent, RewardFacts
from webgym_cli.records.statistics import wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.monitoring.early_stop_bias import EpisodeTotals, compute_cut_bias, site
from webgym_cli.rollout.monitoring.latency import Rate
from webgym_cli.rollout.monitoring.snapshot import complete, merge_timings, top_sites
from webgym_cli.rollout.monitoring.stages import StageTimer
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan
from webgym_cli.store.run import now

_REASONS = 20
# Latency statistics of a stage in the summary.
_LATENCIES = ("count", "p50", "p95", "total")


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
    failures_by_site: dict[str, Counter[str]] = field(default_factory=dict)
    skipped_by_site: Counter[str] = field(default_factory=Counter)
    skip_reasons: Counter[str] = field(default_factory=Counter)
    queues: dict[str, int] = field(default_factory=dict)
    _unjudged: set[str] = field(default_factory=set)
    _other_models: set[str | None] = field(default_factory=lambda: {None})
    _withdrawn: int = 0
    """Number of earlier commands' trajectories whose judgement failed now: their episodes are owed again."""
    _given_up: int = 0
    """Number of episodes given up by this command."""
    _done: EpisodeTotals = field(default_factory=EpisodeTotals)
    _cut: EpisodeTotals = field(default_factory=EpisodeTotals)
    _finishing: Rate = field(init=False)
    _acted: float = field(init=False)
    """Time at which the last episode released its slot."""

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self.stages.clock()
        self._acted = self.started
        self._finishing = Rate(self.started, width=60.0, kept=5)

    def set_queue_depth(self, name: str, depth: int) -> None:
        """Set the depth of a queue."""
        with self.stages.lock:
            self.queues[name] = depth

    def record_skipped(self, owed: PendingEpisode, reason: str) -> None:
        """Count an episode that is not run because its site is on the blocklist."""
        with self.stages.lock:
            self.skipped_by_site[site(owed.episode.task)] += 1
            self.skip_reasons[reason] += 1

    def record_given_up(self) -> None:
        """Count an episode that is not tried again."""
        self._given_up += 1

    def record_stopped_early(self, trajectory: Trajectory) -> None:
        """Count an episode that the early stop cancelled. Called in addition to `record_stored`, in either order."""
        self.stages.end(trajectory.episode)
        self._cut.add(trajectory)

    def record_stored(self, trajectory: Trajectory) -> EpisodeEvent:
        """Count a stored trajectory, mark its slot as released and return its event."""
        self.stages.end(trajectory.episode)
        self._acted = self.stages.clock()
        outcome = trajectory.outcome
        self.steps += len(trajectory.steps)
        if outcome.failure:
            self._count_failure(trajectory)
        else:
            self.finished += 1
            with self.stages.lock:
                self._finishing.add(1, self.stages.clock())
            self._done.add(trajectory)
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
            self._count_failure(trajectory)
            self.finished -= mine
            self._withdrawn += not mine
        else:
            self._count_reward(trajectory)
        return self._event("judged", trajectory)

    def _count_reward(self, trajectory: Trajectory) -> None:
        self.known += trajectory.outcome.success is not None
        self.successes += bool(trajectory.outcome.success)

    def _count_failure(self, trajectory: Trajectory) -> None:
        kind = str(trajectory.outcome.failure)
        with self.stages.lock:
            self.failures[kind] += 1
            self.failures_by_site.setdefault(site(trajectory.task), Counter())[kind] += 1

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
            "facts": self._facts(),
        }

    def _facts(self) -> str:
        rate = f"{self.successes / self.known:.0%} success" if self.known else "no score yet"
        speed = self.steps / max(1e-9, self.stages.clock() - self.started)
        failed = "  ".join(f"{kind} {count}" for kind, count in sorted(self.failures.items()))
        return f"{rate}  {speed:.1f} steps/s  {failed}".rstrip()

    def snapshot(self) -> dict[str, Any]:
        """Return all values of the live view, JSON-serializable.

        Times are in seconds. Each of `stages` has its overall latencies and, in `recent`, those of the last minutes.
        Thread-safe.
        """
        with self.stages.lock:
            now_ = self.stages.clock()
            counted = {
                "rank": 0,
                "ranks": max(1, len(self.worker_timings())),
                "split": self.plan.split.value,
                "iteration": self.plan.iteration,
                "policy": self.plan.policy,
                "bar": f"{self.plan.split} {self.plan.iteration}",
                "started_at": self.started_at,
                "elapsed": round(now_ - self.started, 1),
                "slots": self.slots,
                "total": len(self.plan.episodes),
                "owed": len(self.plan.owed) - self._given_up,
                "given_up": self.plan.given_up + self._given_up,
                "isolation": dict(self.plan.sites),
                "collected": self.finished,
                "withdrawn": self._withdrawn,
                "steps": self.steps,
                "episodes_per_second": round(self._finishing.per_second(now_), 5),
                "known": self.known,
                "successes": self.successes,
                "judged": self.judgements,
                "unjudged": len(self._unjudged),
                "skipped": self.skipped_by_site.total(),
                "skipped_by_site": dict(self.skipped_by_site.most_common()),
                "cut": self._cut.count,
                "queues": dict(self.queues),
                "servers": self.servers(),
                "failures": dict(sorted(self.failures.items())),
                "failures_by_site": top_sites(self.failures_by_site),
                **merge_timings([self.stages.to_json(), *self.worker_timings()]),
            }
            return complete(counted)

    def summary(self) -> CommandFacts:
        """Return the summary of this command's own episodes.

        `judge_tail_seconds`: time from the end of the last episode to the end of judging.
        """
        stages, end = self.snapshot()["stages"], self.stages.clock()
        seconds = end - self.started
        facts: CommandFacts = {
            "collected": self.finished,
            "steps": self.steps,
            "seconds": round(seconds, 2),
            "steps_per_second": round(self.steps / max(1e-9, seconds), 2),
            "failures": dict(sorted(self.failures.items())),
            "failures_by_site": top_sites(self.failures_by_site),
            "skipped": self.skipped_by_site.total(),
            "skip_reasons": dict(self.skip_reasons.most_common(_REASONS)),
            "cut": self._cut.count,
            "judged": self.judgements,
            "judge_tail_seconds": round(end - self._acted, 2) if self.judgements else 0.0,
            "stages": {name: {key: stage[key] for key in _LATENCIES} for name, stage in stages.items()},
        }
        if self._cut.count:
            facts["cut_bias"] = compute_cut_bias(self._done, self._cut)
        if servers := self.servers():
            facts["servers"] = servers
        return facts


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
