"""Sampling bias of the completion threshold: cancelled episodes compared with finished ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.records.task import DifficultyBand, Task
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.util.urls import site_of

# So many sites are named.
SITES = 5


@dataclass(slots=True)
class OutcomeGroup:
    """Trajectories, as far as the bias concerns them."""

    count: int = 0
    steps: int = 0
    """Of all of them."""
    seconds: float = 0.0
    """Of all of them."""
    bands: Counter[DifficultyBand] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)

    def add(self, trajectory: Trajectory) -> None:
        """Take one in."""
        self.count += 1
        self.steps += len(trajectory.steps)
        self.seconds += trajectory.seconds
        self.bands[trajectory.task.band] += 1
        self.sites[site(trajectory.task)] += 1

    def facts(self) -> dict[str, Any]:
        """Return the count, the means (None for none), and the share of each band."""
        return {
            "episodes": self.count,
            "mean_steps": round(self.steps / self.count, 2) if self.count else None,
            "mean_seconds": round(self.seconds / self.count, 2) if self.count else None,
            "bands": {
                band.value: round(self.bands[band] / self.count, 4) for band in DifficultyBand if self.bands[band]
            },
        }


def cut_bias(finished: OutcomeGroup, cut: OutcomeGroup) -> dict[str, Any]:
    """Return how those that were cut differ from those that finished; `words` says it in a sentence.

    The steps and seconds of one that was cut are those until then: whole, it would have been longer. `sites` counts
    [cut, finished] of the sites that lost most.
    """
    return {
        "finished": finished.facts(),
        "cut": cut.facts(),
        "sites": {name: [count, finished.sites[name]] for name, count in cut.sites.most_common(SITES)},
        "words": _words(finished, cut),
    }


def site(task: Task) -> str:
    """Return the site of a task's start page; the environment's name where it has none (MiniWoB)."""
    return (site_of(task.start_url) if "://" in task.start_url else "") or task.environment


def _words(finished: OutcomeGroup, cut: OutcomeGroup) -> str:
    if not cut.count:
        return "nothing was cut"
    begun = f"{cut.count} of {cut.count + finished.count} episodes were cut after {cut.steps / cut.count:.1f} steps"
    if not finished.count:
        return f"{begun} on average; none finished"
    means = f"{begun} on average (those that finished took {finished.steps / finished.count:.1f})"
    bands = ", ".join(
        f"{band} {cut.bands[band] / cut.count:.0%} against {finished.bands[band] / finished.count:.0%}"
        for band in DifficultyBand
        if cut.bands[band] or finished.bands[band]
    )
    sites = ", ".join(f"{name} {count}" for name, count in cut.sites.most_common(SITES))
    return f"{means}; {bands}; most were cut on {sites}; the success rate speaks of those that finished only"
