"""What is in the buffer: counts, success, failures, ages, and what `prepare` would take of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.prepare.plan import survey
from webgym_cli.records.rates import wilson
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import Damage, iterations, scan
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.site import site_of


@dataclass(frozen=True, slots=True)
class Query:
    """Which trajectories are looked at; None: all."""

    split: Split | None = None
    iteration: int | None = None
    task: str | None = None
    reward: float | None = None
    failure: str | None = None
    """A kind of failure, or `any`."""

    def matches(self, trajectory: Trajectory) -> bool:
        """Whether a trajectory is asked for."""
        outcome = trajectory.outcome
        return (
            self.task in (None, trajectory.task.id)
            and self.reward in (None, outcome.reward)
            and (self.failure in (None, outcome.failure) or (self.failure == "any" and outcome.failure is not None))
        )


@dataclass(slots=True)
class Group:
    """The tallies of some trajectories."""

    trajectories: int = 0
    known: int = 0
    successes: int = 0
    steps: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def take(self, trajectory: Trajectory) -> None:
        """Count a trajectory."""
        success = trajectory.outcome.success
        self.trajectories += 1
        self.known += success is not None
        self.successes += bool(success)
        self.steps += len(trajectory.steps)
        if trajectory.outcome.failure:
            self.failures[trajectory.outcome.failure.value] += 1

    def to_json(self) -> dict[str, Any]:
        """Return the tallies with the success rate and its 95 % interval."""
        low, high = wilson(self.successes, self.known)
        return {
            "trajectories": self.trajectories,
            "scored": self.known,
            "successes": self.successes,
            "success_rate": round(self.successes / self.known, 4) if self.known else None,
            "interval": [round(low, 4), round(high, 4)] if self.known else None,
            "mean_steps": round(self.steps / self.trajectories, 2) if self.trajectories else None,
            "failures": dict(sorted(self.failures.items())),
        }


def select(run: RunDir, query: Query, damage: Damage | None = None) -> Iterator[Trajectory]:
    """Yield the trajectories that are asked for, in the order of writing."""
    for split in Split:
        if query.split not in (None, split):
            continue
        for iteration in iterations(run, split):
            if query.iteration in (None, iteration):
                yield from (item for item in scan(run, split, iteration, damage) if query.matches(item))


def overview(run: RunDir, settings: Settings, query: Query) -> dict[str, Any]:
    """Return everything that `inspect-buffer` shows, as one JSON object."""
    keys: dict[str, Callable[[Trajectory], str]] = {
        "by_iteration": lambda item: f"{item.split} {item.iteration}",
        "by_task": lambda item: item.task.id,
        "by_difficulty": lambda item: item.task.band.value,
        "by_site": lambda item: site_of(item.task.start_url) or item.task.environment,
    }
    damage, total = Damage(), Group()
    groups: dict[str, dict[str, Group]] = {name: {} for name in keys}
    ages: list[str] = []
    for trajectory in select(run, query, damage):
        total.take(trajectory)
        ages.append(trajectory.started_at)
        for name, key in keys.items():
            groups[name].setdefault(key(trajectory), Group()).take(trajectory)
    return {
        "run": str(run.root),
        "policy_version": version(run),
        **total.to_json(),
        **{name: {key: group.to_json() for key, group in found.items()} for name, found in groups.items()},
        "oldest": min(ages, default=None),
        "newest": max(ages, default=None),
        "age_hours": [round(_hours(moment), 2) for moment in (min(ages), max(ages))] if ages else None,
        "damaged_lines": damage.lines,
        "prepare": _would_prepare(run, settings),
    }


def _would_prepare(run: RunDir, settings: Settings) -> dict[str, object] | None:
    read = iterations(run, Split.TRAIN)[-settings.algorithm_config.last_n_iterations :]
    return survey(run, settings, version(run), read).to_json() if read else None


def _hours(moment: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds() / 3600
