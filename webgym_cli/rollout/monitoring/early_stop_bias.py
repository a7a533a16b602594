"""Sampling bias of the completion threshold: cancelled episodes compared with finished ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.records.task import DifficultyBand, Task
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.util.urls import site_of

# Number of sites in the report.
SITES = 5


@dataclass(slots=True)
class EpisodeTotals:
    """Aggregate statistics of a set of trajectories."""

    count: int = 0
    steps: int = 0
    """Sum over the trajectories."""
    seconds: float = 0.0
    """Sum over the trajectories."""
    bands: Counter[DifficultyBand] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)

    def add(self, trajectory: Trajectory) -> None:
        """Add a trajectory."""
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


def compute_cut_bias(finished: EpisodeTotals, cut: EpisodeTotals) -> dict[str, Any]:
    """Compare cancelled episodes with finished ones; `words` is the comparison as a sentence.

    Steps and seconds of a cancelled episode are those until its cancellation, a lower bound. `sites` maps the sites
    with the most cancelled episodes to [cancelled, finished] counts.
    """
    return {
        "finished": finished.facts(),
        "cut": cut.facts(),
        "sites": {name: [count, finished.sites[name]] for name, count in cut.sites.most_common(SITES)},
        "words": _words(finished, cut),
    }


def site(task: Task) -> str:
    """Return the site of a task's start page, or the environment's name without one (MiniWoB)."""
    return (site_of(task.start_url) if "://" in task.start_url else "") or task.environment


def _words(finished: EpisodeTotals, cut: EpisodeTotals) -> str:
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
    return f"{means}; {bands}; most were cut on {sites}; the success rate covers finished episodes only"
