"""The current stage of each running episode, and latency histograms per stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from webgym_cli.rollout.monitoring.latency import LatencyWindow, Rate
from webgym_cli.rollout.monitoring.snapshot import oldest
from webgym_cli.rollout.plan import PendingEpisode

_URL_LENGTH = 300


class EpisodeStage(StrEnum):
    """A stage of an episode, as the live view and the summary name it."""

    ADMISSION = "admission"
    """Waiting until the machine has room."""
    RESET = "reset"
    """Opening its start page."""
    OBSERVE = "observe"
    """Taking its screenshot and its elements."""
    HELD = "held"
    """Waiting while the policy's weights are changed."""
    POLICY = "policy"
    """Waiting for the policy's answer."""
    ACT = "act"
    """Carrying out an action, the page's reaction included."""
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
    """When its stage began."""
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
    """The running episodes, and the latencies of all stages."""

    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards the counters: the status file is written from another thread."""
    _now: dict[EpisodeStage, int] = field(default_factory=lambda: dict.fromkeys(EpisodeStage, 0))
    _latencies: dict[EpisodeStage, LatencyWindow] = field(
        default_factory=lambda: {stage: LatencyWindow() for stage in EpisodeStage}
    )
    _running: dict[str, _RunningEpisode] = field(default_factory=dict)
    _stepping: Rate = field(init=False)

    def __post_init__(self) -> None:
        """Start counting steps."""
        self._stepping = Rate(self.clock())

    def begin(self, owed: PendingEpisode) -> None:
        """Record that an episode got a slot."""
        planned, start = owed.episode, self.clock()
        episode = _RunningEpisode(owed.trajectory_id, planned.task.id, planned.max_steps, start, start)
        with self.lock:
            self._running[planned.id] = episode

    def end(self, episode_id: str) -> None:
        """Record that an episode released its slot."""
        with self.lock:
            self._running.pop(episode_id, None)

    def time(self, episode_id: str, stage: EpisodeStage) -> AbstractContextManager[None]:
        """Time a stage, whether or not its episode has a slot."""
        return _StageInterval(self, self._running.get(episode_id), stage)

    def enter(self, stage: EpisodeStage) -> float:
        """Count an episode into a stage and return the time."""
        self._now[stage] += 1
        return self.clock()

    def leave(self, stage: EpisodeStage, start: float) -> None:
        """Count an episode that entered at `start` out of its stage, and add its duration."""
        end = self.clock()
        self._now[stage] -= 1
        with self.lock:
            self._latencies[stage].add(end - start, end)

    def record_step(self, episode_id: str, step: int, max_steps: int, url: str) -> None:
        """Record how many steps an episode has done, and its URL."""
        episode = self._running.get(episode_id)
        if episode is None:
            return
        with self.lock:
            self._stepping.add(max(0, step - episode.step), self.clock())
        episode.step, episode.max_steps = step, max_steps
        episode.url = url[:_URL_LENGTH].encode(errors="replace").decode()  # a lone surrogate can't be encoded as UTF-8

    def to_json(self) -> dict[str, Any]:
        """Return the stages, how many episodes run, and the oldest of them. Needs the lock."""
        now = self.clock()
        stages = {
            stage.value: {"now": self._now[stage], **latency.overall.to_json(), "recent": latency.recent(now).to_json()}
            for stage, latency in self._latencies.items()
        }
        return {
            "steps_per_second": round(self._stepping.per_second(now), 2),
            "stages": stages,
            "running": len(self._running),
            "episodes": oldest([episode.to_json(now) for episode in self._running.values()]),
        }


class _StageInterval(AbstractContextManager[None]):
    """Context manager that times one stage; on exit the episode returns to the enclosing stage, if there is one."""

    # A class instead of a generator: stages are timed several times a step, and a generator is slower.

    __slots__ = ("_before", "_episode", "_stage", "_stages", "_start")

    def __init__(self, stages: StageTimer, episode: _RunningEpisode | None, stage: EpisodeStage) -> None:
        self._stages, self._episode, self._stage = stages, episode, stage

    def __enter__(self) -> None:
        self._start = self._stages.enter(self._stage)
        if self._episode is not None:
            self._before = self._episode.stage, self._episode.since
            self._episode.stage, self._episode.since = self._stage, self._start

    def __exit__(self, *exc: object) -> None:
        self._stages.leave(self._stage, self._start)
        if self._episode is not None:
            self._episode.stage, self._episode.since = self._before
