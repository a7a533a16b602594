"""HTTP server of all sites on one port: the Host header selects the site, and a cookie the episode's state."""

from __future__ import annotations

import secrets

from aiohttp import web

from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.environments.fixture_sites.episode import SITES, SiteEpisode
from webgym_cli.environments.fixture_sites.tasks import SiteTask, find_task
from webgym_cli.environments.fixture_sites.web import SiteRequest, SiteResponse, message_page
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
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

    def open_world(self, seed: int) -> str:
        """Start an episode without task and return its token; it is scored elsewhere."""
        return self._begin(SiteEpisode(_NOTHING_ASKED, seed))

    def _begin(self, episode: SiteEpisode) -> str:
        token = secrets.token_urlsafe(24)
        self.episodes[token] = episode
        return token

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        host = request.host.partition(":")[0].lower()
        if host not in SITES:
            return _respond(message_page("No such site", f"This server has no site {host!r}.", 404))
        if request.method not in ("GET", "HEAD", "POST"):
            return _respond(message_page("Not allowed", "Pages take GET and POST requests.", 405))
        try:
            visit = await _read(request)
        except (ValueError, LookupError):  # an unknown encoding, or invalid bytes
            return _respond(message_page("Bad request", "This form can't be read.", 400))
        token = request.cookies.get(EPISODE_COOKIE, "")
        if (episode := self.episodes.get(token)) is None:
            return _respond(message_page("Forbidden", "This site is only open during an episode.", 403))
        return _respond(SITES[host].answer(episode.state(host), visit))


async def _read(request: web.Request) -> SiteRequest:
    form: dict[str, tuple[str, ...]] = {}
    if request.method == "POST" and request.content_type == "application/x-www-form-urlencoded":
        posted = await request.post()
        form = {name: tuple(str(value) for value in posted.getall(name)) for name in posted}
    method = "GET" if request.method == "HEAD" else request.method
    return SiteRequest(method=method, path=request.path, query=dict(request.query), form=form)


def _respond(reply: SiteResponse) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    if reply.location is not None:
        headers["Location"] = reply.location
    return web.Response(text=reply.body, status=reply.status, content_type="text/html", headers=headers)
