"""Fixture sites and their server as an environment: in place of the open web, with scores and an expert.

The server has one port for all sites: the Host header selects the site, and a cookie the episode's state.
"""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack

from aiohttp import web

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.environments.fixture_sites.episode import SITES, WORLD, SiteEpisode
from webgym_cli.environments.fixture_sites.expert import make_expert_run
from webgym_cli.environments.fixture_sites.tasks import SiteTask, find_task
from webgym_cli.environments.fixture_sites.web import SiteRequest, message_page
from webgym_cli.environments.web.environment import WebEnvironment, WebPool
from webgym_cli.errors import UsageError
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Score
from webgym_cli.util.local_server import LocalServer

# Cookie with an episode's token.
EPISODE_COOKIE = "episode"
_LARGEST_FORM = 256 * 1024
_NOTHING_ASKED = SiteTask("open-world", "", "", {})


class SiteServer(LocalServer):
    """Serves all sites on a free port of 127.0.0.1."""

    hosts = SITE_HOSTS

    def __init__(self) -> None:
        app = web.Application(client_max_size=_LARGEST_FORM)
        app.router.add_route("*", "/{path:.*}", self._serve)
        super().__init__(app, 0)
        self.episodes: dict[str, SiteEpisode] = {}
        """Running episodes by unguessable token; removing one drops its state."""

    @property
    def places(self) -> dict[str, tuple[str, int]]:
        """Address and port for the browser's host mapping, by site."""
        host, port = self.address.rsplit(":", 1)
        return dict.fromkeys(self.hosts, (host, int(port)))

    def describe_start(self, token: str, start_url: str) -> EpisodeStart:
        """Return the start of an episode's browser: the token is set for every host as HttpOnly."""
        cookie = {"name": EPISODE_COOKIE, "value": token, "path": "/", "httpOnly": True}
        return EpisodeStart(start_url=start_url, cookies=tuple({**cookie, "domain": host} for host in self.hosts))

    def start_episode(self, task: Task, seed: int) -> str:
        """Start an episode with fresh state and return its token. Raises `UsageError` for a foreign task."""
        if task.environment != "sites":
            raise UsageError(f"the task {task.id} is for the environment {task.environment}, not for the sites")
        return self._begin(SiteEpisode(find_task(task.id), seed))

    def open_world(self) -> str:
        """Start an episode of a task of WebArena's form and return its token; it is scored elsewhere."""
        return self._begin(SiteEpisode(_NOTHING_ASKED, WORLD))

    def _begin(self, episode: SiteEpisode) -> str:
        token = secrets.token_urlsafe(24)
        self.episodes[token] = episode
        return token

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        host = request.host.partition(":")[0].lower()
        if host not in SITES:
            return message_page("No such site", f"This server has no site {host!r}.", 404)
        try:
            visit = await _read(request)
        except (ValueError, LookupError):  # an unknown encoding, or invalid bytes
            return message_page("Bad request", "This form can't be read.", 400)
        token = request.cookies.get(EPISODE_COOKIE, "")
        if (episode := self.episodes.get(token)) is None:
            return message_page("Forbidden", "This site is only open during an episode.", 403)
        return SITES[host].answer(episode.state(host), visit)


async def _read(request: web.Request) -> SiteRequest:
    form: dict[str, tuple[str, ...]] = {}
    if request.method == "POST" and request.content_type == "application/x-www-form-urlencoded":
        posted = await request.post()
        form = {name: tuple(str(value) for value in posted.getall(name)) for name in posted}
    method = "GET" if request.method == "HEAD" else request.method
    return SiteRequest(method=method, path=request.path, query=dict(request.query), form=form)


class SitesPool(WebPool):
    """Serves the sites in this process and makes environments on them; otherwise as on the open web."""

    def __init__(self, settings: Settings, mode: InteractionMode | None = None) -> None:
        super().__init__(settings, mode)
        self.server = SiteServer()

    async def _start(self, stack: AsyncExitStack) -> None:
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
        episode = self._sites.episodes[self._token]
        self._expert = make_expert_run(episode.task.expert, episode.values)
        return episode.instruction, view

    def resolve_task(self, task: Task) -> Task:
        """Return the task with the facts and the answer of this episode, for a judge."""
        episode = self._sites.episodes[self._token]
        return task.model_copy(update={"rubric": episode.rubric, "reference_answer": episode.reference})

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode by the server's state and the answer."""
        value, reason = self._sites.episodes[self._token].score(text)
        return Score(source="environment", value=value, detail=reason)

    async def _start_episode(self, task: Task, seed: int) -> EpisodeStart:
        self._token = self._sites.start_episode(task, seed)
        self._held.callback(self._sites.episodes.pop, self._token, None)
        return self._sites.describe_start(self._token, task.start_url)
