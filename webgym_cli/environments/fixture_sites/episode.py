"""Live episodes of the sites: a task, a seed, and the state that grows only where it is visited."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from webgym_cli.environments.fixture_sites.registry import find_site
from webgym_cli.environments.fixture_sites.task_template import SiteTask, TaskInstance
from webgym_cli.environments.fixture_sites.tasks import find_task
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task


@dataclass(slots=True)
class LiveEpisode:
    """One episode on the sites. Until a page is visited it is some hundred bytes."""

    task: SiteTask
    seed: int
    requests: int = 0
    """Pages asked for so far; numbers what the faults do."""
    pages: dict[str, int] = field(default_factory=dict)
    """The same by host."""
    _states: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Tells this episode's luck from that of others: equal for the same task and seed."""
        return f"{self.task.id}/{self.seed}"

    @property
    def instance(self) -> TaskInstance:
        """What the seed decided about the task."""
        return _instantiate(self.task, self.seed)

    def state(self, host: str) -> Any:
        """Return the state of one site, made when it is first asked for."""
        if host not in self._states:
            ours = host == self.task.host
            self._states[host] = (
                self.task.new_state(self.instance, self.seed) if ours else find_site(host).new_state(self.seed)
            )
        return self._states[host]

    def count(self, host: str) -> int:
        """Count one page that was asked for. Returns its number within the episode, from 0."""
        number = self.requests
        self.requests += 1
        self.pages[host] = self.pages.get(host, 0) + 1
        return number

    def score(self, answer: str | None) -> tuple[float, str]:
        """Return 1.0 or 0.0, and why."""
        return self.task.score(self.instance, self.state(self.task.host), answer)


_NOTHING_ASKED = SiteTask("open-world", "", "", {})


class EpisodeTable:
    """All live episodes, by a token that nobody can guess."""

    def __init__(self) -> None:
        self._live: dict[str, LiveEpisode] = {}

    def __len__(self) -> int:
        """Return how many are live."""
        return len(self._live)

    def start(self, task: Task, seed: int) -> str:
        """Start an episode with fresh state and return its token. Raises `UsageError` for a task that isn't ours."""
        if task.environment != "sites":
            raise UsageError(f"the task {task.id} is for the environment {task.environment}, not for the sites")
        return self._begin(LiveEpisode(task=find_task(task.id), seed=seed))

    def open_world(self, seed: int) -> str:
        """Start an episode in which nothing is asked: what is done is scored elsewhere. Returns its token."""
        return self._begin(LiveEpisode(task=_NOTHING_ASKED, seed=seed))

    def _begin(self, live: LiveEpisode) -> str:
        token = secrets.token_urlsafe(24)
        self._live[token] = live
        return token

    def find(self, token: str) -> LiveEpisode | None:
        """Return the episode of a token, None for an unknown one."""
        return self._live.get(token)

    def end(self, token: str) -> None:
        """Forget an episode. An unknown token is no error: ending twice is fine."""
        self._live.pop(token, None)


@lru_cache(maxsize=256)
def _instantiate(task: SiteTask, seed: int) -> TaskInstance:
    return task.draw(seed)
