"""The current stage of each running episode, and latency histograms per stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from webgym_cli.rollout.latency import Histogram
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.snapshot import oldest
from webgym_cli.util.text import replace_surrogates

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
    stage: EpisodeStage | None = None
    step: int = 0
    url: str = ""

    def to_json(self, now: float) -> dict[str, Any]:
        return {
            "id": self.id,
            "task": self.task,
            "step": self.step,
            "max_steps": self.max_steps,
            "stage": self.stage.value if self.stage else "",
            "stage_seconds": round(now - self.since, 1),
            "age": round(now - self.begun, 1),
            "url": self.url,
        }


@dataclass(slots=True)
class StageTimer:
    """Running episodes of this process, and latencies per stage. Bound to one event loop."""

    clock: Callable[[], float] = time.monotonic
    """Monotonic clock, in seconds."""
    latencies: dict[str, Histogram] = field(
        default_factory=lambda: {stage.value: Histogram() for stage in EpisodeStage}
    )
    _running: dict[str, _RunningEpisode] = field(default_factory=dict)

    def begin(self, owed: PendingEpisode) -> None:
        """Record that an episode got a slot."""
        planned, start = owed.episode, self.clock()
        episode = _RunningEpisode(owed.trajectory_id, planned.task.id, planned.max_steps, start, start)
        self._running[planned.id] = episode

    def end(self, episode_id: str) -> None:
        """Record that an episode released its slot."""
        self._running.pop(episode_id, None)

    def time(self, episode_id: str, stage: EpisodeStage) -> AbstractContextManager[None]:
        """Return a context manager that times a stage; the episode need not hold a slot."""
        return _StageInterval(self, self._running.get(episode_id), stage)

    def record_step(self, episode_id: str, step: int, max_steps: int, url: str) -> None:
        """Record an episode's step number and URL."""
        if (episode := self._running.get(episode_id)) is None:
            return
        episode.step, episode.max_steps = step, max_steps
        episode.url = replace_surrogates(url[:_URL_LENGTH])

    def timings(self) -> dict[str, Any]:
        """Return the stages and the running episodes, for `merge_timings`; can be pickled."""
        now = self.clock()
        return {
            "stages": self.latencies,
            "running": len(self._running),
            "episodes": oldest([episode.to_json(now) for episode in self._running.values()]),
        }


class _StageInterval(AbstractContextManager[None]):
    """Context manager that times one stage; on exit the episode returns to the enclosing stage, if there is one."""

    # A class instead of a generator: stages are timed several times a step, and a generator is slower.

    __slots__ = ("_before", "_clock", "_episode", "_latencies", "_stage", "_start")

    def __init__(self, stages: StageTimer, episode: _RunningEpisode | None, stage: EpisodeStage) -> None:
        self._clock, self._latencies, self._episode, self._stage = stages.clock, stages.latencies[stage], episode, stage

    def __enter__(self) -> None:
        self._latencies.running += 1
        self._start = self._clock()
        if self._episode is not None:
            self._before = self._episode.stage, self._episode.since
            self._episode.stage, self._episode.since = self._stage, self._start

    def __exit__(self, *exc: object) -> None:
        self._latencies.running -= 1
        self._latencies.add(self._clock() - self._start)
        if self._episode is not None:
            self._episode.stage, self._episode.since = self._before
