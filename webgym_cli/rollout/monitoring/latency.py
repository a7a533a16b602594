"""Latency histograms and rates in bounded memory, independent of the length of a run."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

# Largest relative error of a quantile.
ERROR = 0.025
# Range in seconds in which the error bound holds; durations outside are clamped to it.
SHORTEST, LONGEST = 1e-4, 1e5

_GROWTH = (1 + ERROR) / (1 - ERROR)
_PER_LOG = 1 / math.log(_GROWTH)
_FIRST, _LAST = (math.ceil(math.log(bound) * _PER_LOG) for bound in (SHORTEST, LONGEST))


@dataclass(slots=True)
class Histogram:
    """Histogram of durations with exponential buckets, about 400 at most.

    A quantile (the value of rank ceil(q * count)) has a relative error of at most `ERROR` between `SHORTEST` and
    `LONGEST`. Histograms are mergeable: the merge of two processes' equals the histogram of all their durations.
    """

    buckets: dict[int, int] = field(default_factory=dict)
    """Count by bucket index: bucket i holds durations in (growth^(i-1), growth^i] seconds."""
    count: int = 0
    total: float = 0.0
    """Sum in seconds, exact."""

    def add(self, seconds: float) -> None:
        """Count one duration."""
        bucket = _FIRST
        if seconds > SHORTEST:
            bucket = min(_LAST, math.ceil(math.log(seconds) * _PER_LOG))
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += seconds

    def merge(self, other: Histogram) -> None:
        """Add the durations of another histogram."""
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += other.count
        self.total += other.total

    def quantile(self, share: float) -> float | None:
        """Return the quantile `share` (0 to 1) in seconds; None without durations."""
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return float(2 * _GROWTH**bucket / (_GROWTH + 1))
        return None

    def facts(self) -> dict[str, Any]:
        """Return count, p50, p95 and total, in seconds."""
        return {
            "count": self.count,
            "p50": _round(self.quantile(0.5)),
            "p95": _round(self.quantile(0.95)),
            "total": round(self.total, 3),
        }

    def to_json(self) -> dict[str, Any]:
        """Return `facts` and the buckets, for `from_json`."""
        return {**self.facts(), "buckets": {str(bucket): count for bucket, count in self.buckets.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Histogram:
        """Return the histogram that `to_json` wrote."""
        buckets = {int(bucket): int(count) for bucket, count in value["buckets"].items()}
        return cls(buckets, sum(buckets.values()), float(value["total"]))


@dataclass(slots=True)
class LatencyWindow:
    """Histograms of all durations and of recent ones, the last (`KEPT` - 1) to `KEPT` times `WIDTH` seconds."""

    overall: Histogram = field(default_factory=Histogram)
    _parts: deque[tuple[int, Histogram]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, seconds: float, now: float) -> None:
        """Count a duration that ended at `now` (seconds of a monotonic clock)."""
        self.overall.add(seconds)
        number = int(now // WIDTH)
        if not self._parts or self._parts[-1][0] != number:
            self._parts.append((number, Histogram()))
        self._parts[-1][1].add(seconds)

    def recent(self, now: float) -> Histogram:
        """Return the histogram of the recent durations."""
        histogram = Histogram()
        for number, part in self._parts:
            if number > now // WIDTH - KEPT:
                histogram.merge(part)
        return histogram


# Length of one interval of the window, in seconds.
WIDTH = 60.0
# Number of intervals in the window.
KEPT = 5


@dataclass(slots=True)
class Rate:
    """Rate of events per second over a sliding window."""

    since: float
    """Start of counting, in seconds of the clock."""
    width: float = 10.0
    """Length of one interval of the window, in seconds."""
    kept: int = 6
    """Number of intervals in the window."""
    _parts: dict[int, int] = field(default_factory=dict)

    def add(self, count: int, now: float) -> None:
        """Count `count` events at `now`."""
        number = int(now // self.width)
        if number not in self._parts:
            self._parts = {old: part for old, part in self._parts.items() if old > number - self.kept}
        self._parts[number] = self._parts.get(number, 0) + count

    def per_second(self, now: float) -> float:
        """Return the rate over the window, or since the start of counting if that is shorter (at least one second)."""
        number = int(now // self.width)
        start = max(self.since, (number - self.kept + 1) * self.width)
        counted = sum(count for part, count in self._parts.items() if part > number - self.kept)
        return counted / max(1.0, now - start)


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.4g}")
