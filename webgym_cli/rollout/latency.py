"""Latency histograms in bounded memory, independent of the length of a run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# Largest relative error of a quantile: durations are rounded to two digits.
ERROR = 0.05


@dataclass(slots=True)
class Histogram:
    """Histogram of durations. The merge of two processes' equals the histogram of all their durations."""

    counts: Counter[float] = field(default_factory=Counter)
    """Count by duration in seconds, rounded to two digits: 90 for each power of ten."""
    total: float = 0.0
    """Sum in seconds, exact."""
    running: int = 0
    """Durations that have begun and not ended."""

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[float(f"{seconds:.2g}")] += 1
        self.total += seconds

    def merge(self, other: Histogram) -> None:
        """Add the durations of another histogram."""
        self.counts.update(other.counts)
        self.total += other.total
        self.running += other.running

    def quantile(self, share: float) -> float | None:
        """Return the quantile `share` (0 to 1) in seconds, that of rank ceil(share * count); None without durations."""
        rank = max(1, math.ceil(share * self.counts.total()))
        for seconds, count in sorted(self.counts.items()):
            rank -= count
            if rank <= 0:
                return seconds
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the running durations (`now`), and count, p50, p95 and total, in seconds, of those that ended."""
        return {
            "now": self.running,
            "count": self.counts.total(),
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "total": round(self.total, 3),
        }
