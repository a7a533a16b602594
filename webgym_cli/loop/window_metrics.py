"""What an asynchronous loop records: a summary of each window of the task stream, and the facts of each batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.agent.gate import PolicyGate
from webgym_cli.loop.collector import Collector
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.events import Event, RolloutSummary, make_event
from webgym_cli.records.failure import is_rolled_out
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.engine import summarize
from webgym_cli.rollout.monitoring.monitor import Monitor
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.store.buffer import scan
from webgym_cli.store.run import RunDir


@dataclass(slots=True)
class WindowMetrics:
    """The counters of the windows that are open, and the waits that were told already."""

    run: RunDir
    monitor: Monitor | None = None
    """Of the engine that collects; None before it runs."""
    _windows: dict[int, Monitor] = field(default_factory=dict)
    _totals: dict[str, float] = field(default_factory=dict)

    def open(self, plan: RolloutPlan) -> None:
        """Count a window from now on."""
        if self.monitor is None:
            self._windows[plan.iteration] = Monitor(plan, 0)
        else:
            self._windows[plan.iteration] = Monitor(plan, self.monitor.slots, stages=self.monitor.stages)
            self.monitor.plan = self.monitor.plan.extend(plan)

    def record(self, trajectory: Trajectory, judged: bool) -> None:
        """Count a stored trajectory, or one that has its judgement now."""
        if window := self._windows.get(trajectory.iteration):
            if judged:
                window.record_judged(trajectory)
            else:
                window.record_stored(trajectory)

    def close(self, iteration: int) -> RolloutSummary | None:
        """Return the summary of a window whose groups are all closed, once; None where nothing was collected of it."""
        if (window := self._windows.pop(iteration, None)) is None:
            return None
        stored = list(scan(self.run, window.plan.split, iteration))
        if not any(is_rolled_out(trajectory.outcome.failure) for trajectory in stored):
            return None
        return summarize(self.run, window.plan, window.plan.policy, window, stored=stored)

    def describe_batch(
        self, batch: TrainingBatch, waited: float, gate: PolicyGate, collector: Collector
    ) -> tuple[Event, str]:
        """Return the event of a batch and the same in words. `waited`: seconds that the trainer has waited for it."""
        staleness = summarize_staleness(batch.staleness)
        dropped = Counter(group.reason for group in batch.dropped)
        event = make_event(
            "batch",
            iteration=batch.parent,
            episodes=batch.episodes,
            groups=len(batch.groups),
            windows=list(batch.iterations),
            dropped=dict(sorted(dropped.items())),
            staleness=staleness,
            **collector.admission.counts(),
            trainer_wait_seconds=round(waited, 2),
            admission_wait_seconds=self._since("admission", collector.wait_seconds),
            held_seconds=self._since("held", gate.held_seconds),
        )
        words = f"batch of version {batch.parent}: {len(batch.groups)} groups, {batch.episodes} episodes"
        return event, f"{words}, staleness {staleness['mean']:.2f} on average, {staleness['max']} at most"

    def _since(self, name: str, total: float) -> float:
        """Return what was added to a sum since the last batch."""
        before, self._totals[name] = self._totals.get(name, 0.0), total
        return round(total - before, 2)


def summarize_staleness(tokens: Mapping[int, int]) -> dict[str, Any]:
    """Return mean, p95, max and histogram of the staleness of tokens. `tokens`: their number by staleness."""
    total, seen, p95 = sum(tokens.values()), 0, 0
    for age, count in sorted(tokens.items()):
        if seen < math.ceil(0.95 * total):
            p95 = age
        seen += count
    mean = sum(age * count for age, count in tokens.items()) / max(1, total)
    histogram = {str(age): count for age, count in sorted(tokens.items())}
    return {"mean": round(mean, 4), "p95": p95, "max": max(tokens, default=0), "tokens": histogram}
