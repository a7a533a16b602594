"""Counts a rollout while it runs and tells of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.records.events import Event
from webgym_cli.records.rates import wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.plan import RolloutPlan


@dataclass(slots=True)
class Monitor:
    """The tallies of one rollout command."""

    plan: RolloutPlan
    started: float = field(default_factory=time.monotonic)
    finished: int = 0
    """Episodes that worked."""
    known: int = 0
    """Those whose reward is known."""
    successes: int = 0
    steps: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def take(self, trajectory: Trajectory) -> Event:
        """Count a stored trajectory and return its event."""
        outcome = trajectory.outcome
        self.steps += len(trajectory.steps)
        if outcome.failure:
            self.failures[outcome.failure.value] += 1
        else:
            self.finished += 1
            self.known += outcome.success is not None
            self.successes += bool(outcome.success)
        return {
            "event": "trajectory",
            "id": trajectory.id,
            "task": trajectory.task.id,
            "reward": outcome.reward,
            "stop": outcome.stop,
            "failure": outcome.failure,
            "failure_detail": outcome.failure_detail or None,
            "steps": len(trajectory.steps),
            "seconds": trajectory.seconds,
            "bar": f"{trajectory.split} {trajectory.iteration}",
            "done": self.plan.done + self.finished,
            "total": len(self.plan.episodes),
            "facts": self._facts(),
        }

    def _facts(self) -> str:
        rate = f"{self.successes / self.known:.0%} success" if self.known else "no score yet"
        speed = self.steps / max(1e-9, time.monotonic() - self.started)
        failed = "  ".join(f"{kind} {count}" for kind, count in sorted(self.failures.items()))
        return f"{rate}  {speed:.1f} steps/s  {failed}".rstrip()

    def summary(self) -> dict[str, Any]:
        """Return the facts about this command's own episodes."""
        seconds = time.monotonic() - self.started
        return {
            "collected": self.finished,
            "steps": self.steps,
            "seconds": round(seconds, 2),
            "steps_per_second": round(self.steps / max(1e-9, seconds), 2),
            "failures": dict(sorted(self.failures.items())),
        }


def tally(trajectories: list[Trajectory]) -> dict[str, Any]:
    """Return the success rate over trajectories that worked and whose reward is known, with its 95 % interval."""
    known = [trajectory for trajectory in trajectories if trajectory.outcome.success is not None]
    successes = sum(bool(trajectory.outcome.success) for trajectory in known)
    low, high = wilson(successes, len(known))
    return {
        "episodes": len(known),
        "successes": successes,
        "success_rate": round(successes / len(known), 4) if known else None,
        "interval": [round(low, 4), round(high, 4)],
    }
