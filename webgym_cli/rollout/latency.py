"""Latency histograms in bounded memory, independent of the length of a run."""

from __future__ import annotations

import math
from collections import Counter
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

    buckets: Counter[int] = field(default_factory=Counter)
    """Count by bucket index: bucket i holds durations in (growth^(i-1), growth^i] seconds."""
    total: float = 0.0
    """Sum in seconds, exact."""
    running: int = 0
    """Durations that have begun and not ended."""

    @property
    def count(self) -> int:
        """Number of durations."""
        return self.buckets.total()

    def add(self, seconds: float) -> None:
        """Count one duration."""
        bucket = _FIRST if seconds <= SHORTEST else min(_LAST, math.ceil(math.log(seconds) * _PER_LOG))
        self.buckets[bucket] += 1
        self.total += seconds

    def merge(self, other: Histogram) -> None:
        """Add the durations of another histogram."""
        self.buckets.update(other.buckets)
        self.total += other.total
        self.running += other.running

    def quantile(self, share: float) -> float | None:
        """Return the quantile `share` (0 to 1) in seconds, with four digits; None without durations."""
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return float(f"{2 * _GROWTH**bucket / (_GROWTH + 1):.4g}")
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the running durations (`now`), and count, p50, p95 and total, in seconds, of those that ended."""
        return {
            "now": self.running,
            "count": self.count,
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "total": round(self.total, 3),
        }
