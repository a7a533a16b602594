"""The running episodes of a process, latency histograms of their stages, and the sums of several processes."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Any, Literal

from webgym_cli.agent.prompt import ServerCounters
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.util.text import replace_surrogates


@dataclass(slots=True)
class Histogram:
    """Histogram of durations in bounded memory. The merge of two processes' equals that of all their durations."""

    counts: Counter[float] = field(default_factory=Counter)
    """Count by duration in seconds, rounded to two digits: 90 for each power of ten."""
    total: float = 0.0
    """Sum in seconds, exact."""
    running: int = 0
    """Durations that have begun and not ended."""

    def add(self, seconds: float) -> None:
        """Count one duration."""
        # Two digits: the largest relative error of a quantile is 0.05.
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


# Maximum number of running episodes listed (the oldest); the others are only counted.
RUNNING = 100
_URL_LENGTH = 300


class EpisodeStage(StrEnum):
    """Stage of an episode, as named in the live view and the summary."""

    ADMISSION = "admission"
    """Waiting for free memory."""
    RESET = "reset"
    """Opening the start page."""
    OBSERVE = "observe"
    """Storing the observation and rendering the prompt."""
    HELD = "held"
    """Waiting during a weight update of the policy."""
    POLICY = "policy"
    """Waiting for the policy's response."""
    AGENT = "agent"
    """Running an agent's command; its calls are also counted as `policy`."""
    ACT = "act"
    """Executing an action, including the page's reaction."""
    CHECK = "check"
    """Being decided by the check of its task."""
    STORE = "store"
    """Being written to disk."""
    JUDGE = "judge"
    """Being judged."""


@dataclass(slots=True)
class _RunningEpisode:
    """A running episode as the live view shows it."""

    id: str
    task: str
    max_steps: int
    begun: float
    since: float
    """Start time of its stage."""
    stage: EpisodeStage | Literal[""] = ""
    step: int = 0
    url: str = ""

    def to_json(self, now: float) -> dict[str, Any]:
        facts = asdict(self) | {"stage": str(self.stage)}
        times = {"stage_seconds": round(now - facts.pop("since"), 1), "age": round(now - facts.pop("begun"), 1)}
        return facts | times


@dataclass(slots=True)
class StageTimer:
    """Running episodes of this process, and latencies per stage. Bound to one event loop."""

    clock: Callable[[], float] = time.monotonic
    """Monotonic clock, in seconds."""
    latencies: dict[str, Histogram] = field(
        default_factory=lambda: {stage.value: Histogram() for stage in EpisodeStage}
    )
    servers: Callable[[], ServerCounters] = dict
    """Returns the request counters of the policy's servers."""
    _running: dict[str, _RunningEpisode] = field(default_factory=dict)

    def begin(self, owed: PendingEpisode) -> None:
        """Record that an episode got a slot."""
        planned, start = owed.episode, self.clock()
        episode = _RunningEpisode(owed.trajectory_id, planned.task.id, planned.max_steps, start, start)
        self._running[planned.id] = episode

    def end(self, episode_id: str) -> None:
        """Record that an episode released its slot."""
        self._running.pop(episode_id, None)

    @contextmanager
    def time(self, episode_id: str, stage: EpisodeStage) -> Iterator[None]:
        """Time a stage, after which the episode is in the enclosing one again; it need not hold a slot."""
        latencies, start = self.latencies[stage], self.clock()
        episode = self._running.get(episode_id) or _RunningEpisode(episode_id, "", 0, start, start)
        before = episode.stage, episode.since
        latencies.running += 1
        episode.stage, episode.since = stage, start
        try:
            yield
        finally:
            latencies.running -= 1
            latencies.add(self.clock() - start)
            episode.stage, episode.since = before

    def record_step(self, episode_id: str, step: int, max_steps: int, url: str) -> None:
        """Record an episode's step number and URL."""
        if (episode := self._running.get(episode_id)) is None:
            return
        episode.step, episode.max_steps = step, max_steps
        episode.url = replace_surrogates(url[:_URL_LENGTH])

    def timings(self) -> dict[str, Any]:
        """Return stages, running episodes and server counters, for `merge_timings`; can be pickled."""
        now = self.clock()
        return {
            "stages": self.latencies,
            "running": len(self._running),
            "episodes": _oldest([episode.to_json(now) for episode in self._running.values()]),
            "servers": self.servers(),
        }


def merge_timings(timings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the timings of several processes, JSON-serializable; quantiles are those of the merged histograms."""
    stages, servers = {name.value: Histogram() for name in EpisodeStage}, ServerCounters()
    for timing in timings:
        for name, latencies in timing["stages"].items():
            stages[name].merge(latencies)
        for address, counts in timing["servers"].items():
            total = servers.setdefault(address, dict.fromkeys(counts, 0))
            total.update({name: round(total[name] + count, 2) for name, count in counts.items()})
    return {
        "stages": {name: latencies.to_json() for name, latencies in stages.items()},
        "running": sum(timing["running"] for timing in timings),
        "episodes": _oldest(list(chain.from_iterable(timing["episodes"] for timing in timings))),
        "servers": servers,
    }


def idle_timings(timings: dict[str, Any]) -> dict[str, Any]:
    """Return the timings of a process that has ended: no running episodes, no open requests."""
    stages = {name: replace(latencies, running=0) for name, latencies in timings["stages"].items()}
    servers = {address: {**counts, "outstanding": 0, "open": 0} for address, counts in timings["servers"].items()}
    return {"running": 0, "episodes": [], "stages": stages, "servers": servers}


def _oldest(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(episodes, key=lambda episode: -episode["age"])[:RUNNING]
