"""Fixture sites as an environment: local web sites in place of the open web, with scores and an expert."""

from __future__ import annotations

from contextlib import AsyncExitStack

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.fixture_sites.expert import make_site_expert
from webgym_cli.environments.fixture_sites.server import SiteServer
from webgym_cli.environments.web.environment import WebEnvironment, WebPool
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Score


class SitesPool(WebPool):
    """Serves the sites in this process and makes environments on them; otherwise as on the open web."""

    def __init__(self, settings: Settings, mode: InteractionMode | None = None) -> None:
        super().__init__(settings, mode)
        self.server = SiteServer()

    async def _start(self, stack: AsyncExitStack) -> None:
        """Serve the sites, start the egress proxy that allows them, and the browser."""
        await stack.enter_async_context(self.server)
        self.gate.rules = self.gate.rules.with_places(self.server.places)
        await super()._start(stack)

    def new(self) -> SitesEnvironment:
        """Return a fresh environment; its episode has its own state on the server."""
        return SitesEnvironment(self)


class SitesEnvironment(WebEnvironment):
    """One episode on the fixture sites, scored by the server's state."""

    def __init__(self, pool: SitesPool) -> None:
        super().__init__(pool)
        self._sites = pool.server
        self._token = ""

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Start an episode with fresh state on the server and open its start page."""
        _, view = await super().reset(task, seed)
        instruction = self._sites.episodes[self._token].instruction
        self._expert = make_site_expert(task.id, instruction)
        return instruction, view

    def resolve_task(self, task: Task) -> Task:
        """Return the task with the facts and the answer of this episode, for a judge."""
        episode = self._sites.episodes[self._token]
        return task.model_copy(update={"rubric": episode.rubric, "reference_answer": episode.reference})

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode by the server's state and the answer."""
        value, reason = self._sites.episodes[self._token].score(text)
        return Score(source="environment", value=value, detail=reason)

    async def close(self) -> None:
        """Close the browser context and drop the episode's state."""
        await super().close()
        self._sites.episodes.pop(self._token, None)

    async def _start_episode(self, task: Task, seed: int) -> EpisodeStart:
        self._token = self._sites.start_episode(task, seed)
        return self._sites.describe_start(self._token, task.start_url)
