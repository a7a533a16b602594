"""Metrics of the asynchronous loop: window summaries, batch events and reports of long waits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.loop.collector import Collector
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.events import Event, EventSink, RolloutSummary, make_event
from webgym_cli.records.failure import is_rolled_out
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.monitor import Monitor
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.rollout.stage_timer import Histogram
from webgym_cli.rollout.summary import summarize
from webgym_cli.store.buffer import scan
from webgym_cli.store.run import RunDir

# Interval between updates of the counts that `webgym status` shows.
_COUNT_SECONDS = 1.0
# Waits longer than this are reported, and reported again at this interval.
_WAIT_SECONDS = 60.0


@dataclass(slots=True)
class AsyncMetrics:
    """Counters of the open windows of the task stream, and the current waits."""

    run: RunDir
    monitor: Monitor | None = None
    """Monitor of the collecting engine; None before it runs."""
    _windows: dict[int, Monitor] = field(default_factory=dict)
    _totals: dict[str, float] = field(default_factory=dict)
    """Cumulative seconds at the previous batch, by kind of wait."""
    _waits: dict[str, float] = field(default_factory=dict)
    """Start times (monotonic) of the current waits, by description."""

    def open_window(self, plan: RolloutPlan) -> None:
        """Start counting a window."""
        if self.monitor is None:
            self._windows[plan.iteration] = Monitor(plan, 0)
        else:
            self._windows[plan.iteration] = Monitor(plan, self.monitor.slots, stages=self.monitor.stages)
            self.monitor.add_plan(plan)

    def record(self, trajectory: Trajectory, judged: bool) -> None:
        """Count a trajectory as stored, or as judged if `judged`."""
        if window := self._windows.get(trajectory.iteration):
            if judged:
                window.record_judged(trajectory)
            else:
                window.record_stored(trajectory)

    def close_window(self, iteration: int) -> RolloutSummary | None:
        """Return the summary of a window whose groups are all closed.

        None if the window is not open, or if none of its episodes was rolled out.
        """
        if (window := self._windows.pop(iteration, None)) is None:
            return None
        stored = list(scan(self.run, window.plan.split, iteration))
        if not any(is_rolled_out(trajectory.outcome.failure) for trajectory in stored):
            return None
        return summarize(self.run, window.plan, window, stored=stored)

    def describe_batch(
        self, batch: TrainingBatch, waited: float, gate: PolicyGate, collector: Collector
    ) -> tuple[Event, str]:
        """Return the event of a batch and its message. `waited`: seconds that the trainer waited for the batch."""
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
        """Return the increase of a cumulative total since the last batch."""
        before, self._totals[name] = self._totals.get(name, 0.0), total
        return round(total - before, 2)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Register a wait for the duration of the block."""
        self._waits[what] = time.monotonic()
        try:
            yield
        finally:
            del self._waits[what]

    async def watch(self, collector: Collector, gate: PolicyGate, sink: EventSink) -> None:
        """Report long waits, and update the counts that `webgym status` shows. Runs until cancelled."""
        noted_at = time.monotonic()
        while True:
            await asyncio.sleep(_COUNT_SECONDS)
            counts = collector.admission.counts()
            if self.monitor is not None:
                queues = self.monitor.queues
                queues["groups open"], queues["groups ready"] = counts["open"], counts["ready"]
                queues["slots waiting"], queues["episodes held"] = collector.waiting, gate.held
            now = time.monotonic()
            if now - noted_at < _WAIT_SECONDS:
                continue
            noted_at = now
            for what, since in self._waits.items():
                if (seconds := now - since) >= _WAIT_SECONDS:
                    sink(_describe_wait(what, seconds, collector))


def summarize_staleness(tokens: Mapping[int, int]) -> dict[str, Any]:
    """Return mean, p95, max and histogram of token staleness. `tokens`: token count by staleness."""
    p95 = Histogram(Counter[float](tokens)).quantile(0.95) or 0
    mean = sum(age * count for age, count in tokens.items()) / max(1, sum(tokens.values()))
    histogram = {str(age): count for age, count in sorted(tokens.items())}
    return {"mean": round(mean, 4), "p95": p95, "max": max(tokens, default=0), "tokens": histogram}


def _describe_wait(what: str, seconds: float, collector: Collector) -> Event:
    counts = collector.admission.counts()
    late = next((group.id for group in collector.admission.groups.values() if not group.closed), "")
    message = f"{what}, for {seconds / 60:.0f} minutes: {counts['ready']} groups are ready, {counts['open']} open"
    if late:
        message += f", the oldest of {late}"
    return make_event("waiting", what=what, seconds=round(seconds), **counts, group=late, message=message)
