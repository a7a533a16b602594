"""Which episode is in which stage, and how long the stages take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from webgym_cli.rollout.monitoring.latency import Latency, Rate
from webgym_cli.rollout.monitoring.snapshot import oldest
from webgym_cli.rollout.plan import Owed

_URL_LENGTH = 300


class EpisodeStage(StrEnum):
    """What an episode is busy with."""

    ADMISSION = "admission"
    """Waiting until the machine has room."""
    RESET = "reset"
    """Opening its start page."""
    OBSERVE = "observe"
    """Taking its screenshot and its elements."""
    POLICY = "policy"
    """Waiting for the policy's answer."""
    ACT = "act"
    """Carrying out an action, the page's reaction included."""
    STORE = "store"
    """Being written to disk."""
    JUDGE = "judge"
    """Being judged."""


@dataclass(slots=True)
class _Line:
    """An episode that runs."""

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
class Stages:
    """The running episodes, and the latencies of all stages."""

    clock: Callable[[], float]
    """Seconds that never go back."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while something is counted or told: another thread may ask at any time."""
    _now: dict[EpisodeStage, int] = field(default_factory=lambda: dict.fromkeys(EpisodeStage, 0))
    _latencies: dict[EpisodeStage, Latency] = field(
        default_factory=lambda: {stage: Latency() for stage in EpisodeStage}
    )
    _lines: dict[str, _Line] = field(default_factory=dict)
    _stepping: Rate = field(init=False)

    def __post_init__(self) -> None:
        """Start counting steps."""
        self._stepping = Rate(self.clock())

    def begin(self, owed: Owed) -> None:
        """Note that an episode got a slot."""
        episode, start = owed.episode, self.clock()
        name = f"{episode.id}.{owed.attempt}" if owed.attempt else episode.id
        line = _Line(name, episode.task.id, episode.max_steps, start, start)
        with self.lock:
            self._lines[episode.id] = line

    def end(self, episode_id: str) -> None:
        """Note that an episode gave its slot back."""
        with self.lock:
            self._lines.pop(episode_id, None)

    def time(self, episode_id: str, stage: EpisodeStage) -> AbstractContextManager[None]:
        """Time a stage, whether or not its episode has a slot."""
        return _Timing(self, self._lines.get(episode_id), stage)

    def enter(self, stage: EpisodeStage) -> float:
        """Note that an episode came into a stage, and return when."""
        self._now[stage] += 1
        return self.clock()

    def leave(self, stage: EpisodeStage, start: float) -> None:
        """Note that the episode that came at `start` left it."""
        end = self.clock()
        self._now[stage] -= 1
        with self.lock:
            self._latencies[stage].add(end - start, end)

    def stepped(self, episode_id: str, step: int, max_steps: int, url: str) -> None:
        """Note how many steps an episode has done, and where it is."""
        line = self._lines.get(episode_id)
        if line is None:
            return
        with self.lock:
            self._stepping.add(max(0, step - line.step), self.clock())
        line.step, line.max_steps = step, max_steps
        line.url = url[:_URL_LENGTH].encode(errors="replace").decode()  # half a character can't be written

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return count, p50, p95 and total of each stage, in seconds."""
        return {stage.value: latency.overall.facts() for stage, latency in self._latencies.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the stages, how many episodes run, and the oldest of them. Needs the lock."""
        now = self.clock()
        stages = {
            stage.value: {
                "now": self._now[stage],
                **latency.overall.to_json(),
                "recent": latency.recent(now).to_json(),
            }
            for stage, latency in self._latencies.items()
        }
        return {
            "steps_per_second": round(self._stepping.per_second(now), 2),
            "stages": stages,
            "running": len(self._lines),
            "episodes": oldest([line.to_json(now) for line in self._lines.values()]),
        }


class _Timing(AbstractContextManager[None]):
    """Times one stage; afterwards its episode is in the stage around it, if there is one.

    A class, since a generator takes longer and stages are timed several times a step.
    """

    __slots__ = ("_before", "_line", "_stage", "_stages", "_start")

    def __init__(self, stages: Stages, line: _Line | None, stage: EpisodeStage) -> None:
        self._stages, self._line, self._stage = stages, line, stage

    def __enter__(self) -> None:
        self._start = self._stages.enter(self._stage)
        if self._line is not None:
            self._before = self._line.stage, self._line.since
            self._line.stage, self._line.since = self._stage, self._start

    def __exit__(self, *exc: object) -> None:
        self._stages.leave(self._stage, self._start)
        if self._line is not None:
            self._line.stage, self._line.since = self._before
