"""The sites behind one port: told apart by the Host header, with an episode's state behind each cookie."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from webgym_cli.environments.fixture_sites import lab, manual_play
from webgym_cli.environments.fixture_sites.episode import EpisodeTable, LiveEpisode
from webgym_cli.environments.fixture_sites.faults import FaultConfig
from webgym_cli.environments.fixture_sites.padding import add_padding
from webgym_cli.environments.fixture_sites.registry import SITE_HOSTS, find_site
from webgym_cli.environments.fixture_sites.web import SiteRequest, SiteResponse, message_page, render_page
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task

if TYPE_CHECKING:
    from aiohttp import web

# The cookie that carries an episode's token; an environment sets it for every host, HTTP-only.
EPISODE_COOKIE = "episode"
# All host names that are served. `.test` is reserved (RFC 6761): a browser has to map them to the server.
HOSTS: tuple[str, ...] = (*SITE_HOSTS, *lab.HOSTS)
# A picture, on every host, that never finishes loading.
ENDLESS = "/endless.gif"
_LARGEST_FORM = 256 * 1024
_SHUTDOWN = 1.0


class SiteServer:
    """An async context manager that serves all sites on 127.0.0.1. With `by_hand`, people can start episodes."""

    def __init__(self, *, port: int = 0, faults: FaultConfig | None = None, by_hand: bool = False) -> None:
        self.faults = faults or FaultConfig()
        self._port = port
        self._by_hand = by_hand
        self._episodes = EpisodeTable()
        self._runner: web.AppRunner | None = None
        self.closing = asyncio.Event()
        """Set when the server stops: ends all that waits."""

    async def __aenter__(self) -> SiteServer:
        """Listen. Raises `UsageError` when the port is taken."""
        from aiohttp import web

        app = web.Application(client_max_size=_LARGEST_FORM)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port, backlog=1024).start()
        except OSError as error:
            await runner.cleanup()
            raise UsageError(
                f"port {self._port} of 127.0.0.1 can't be listened on: {error.strerror or error}",
                hint="choose another port; 0 takes a free one",
            ) from error
        self._runner = runner
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening, end what hangs, and forget all episodes."""
        self.closing.set()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        self._episodes = EpisodeTable()

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT`. Raises `RuntimeError` while the server is not running."""
        if self._runner is None:
            raise RuntimeError("the sites are not being served")
        host, port = self._runner.addresses[0][:2]
        return f"{host}:{port}"

    @property
    def live(self) -> int:
        """How many episodes are live."""
        return len(self._episodes)

    def start_episode(self, task: Task, seed: int) -> str:
        """Start an episode with fresh state and return its token. Raises `UsageError` for a task that isn't ours."""
        return self._episodes.start(task, seed)

    def open_world(self, seed: int) -> str:
        """Start an episode in which nothing is asked and return its token: what is done is scored elsewhere."""
        return self._episodes.open_world(seed)

    def instruction(self, token: str) -> str:
        """Return what the episode asks for. This and the next three raise `KeyError` for an unknown token."""
        live = self._live(token)
        return live.task.render_instruction(live.instance)

    def rubric(self, token: str) -> tuple[str, ...]:
        """Return the episode's facts."""
        live = self._live(token)
        return live.task.rubric(live.instance)

    def reference_answer(self, token: str) -> str | None:
        """Return the right answer, alternatives with `|OR|` between; None when the state decides."""
        return self._live(token).instance.reference

    def score(self, token: str, answer: str | None) -> tuple[float, str]:
        """Return 1.0 when the task is solved, else 0.0, and the reason in words."""
        return self._live(token).score(answer)

    def end_episode(self, token: str) -> None:
        """Forget an episode; its token is worth nothing from now on. Ending twice is fine."""
        self._episodes.end(token)

    def _live(self, token: str) -> LiveEpisode:
        live = self._episodes.find(token)
        if live is None:
            raise KeyError("there is no live episode of this token")
        return live

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        host = request.host.partition(":")[0].lower()
        if request.path == ENDLESS:
            return await lab.hang(request, self.closing)
        if host in lab.HOSTS:
            return await lab.serve(host, request)
        if host not in SITE_HOSTS:
            return _response(message_page("No such site", f"This server has no site {host!r}.", 404))
        if request.method not in ("GET", "HEAD", "POST"):
            return _response(message_page("Not allowed", "Pages take GET and POST requests.", 405))
        try:
            visit = await _read(request)
        except (ValueError, LookupError):  # an encoding that does not exist, or bytes that are not in it
            return _response(message_page("Bad request", "This form can't be read.", 400))
        token = request.cookies.get(EPISODE_COOKIE, "")
        if self._by_hand and visit.path.startswith(manual_play.PREFIX):
            return self._serve_manual_play(host, token, visit)
        live = self._episodes.find(token)
        if live is None:
            return _response(message_page("Forbidden", "This site is only open during an episode.", 403))
        return _response(await self._answer(live, host, visit))

    def _serve_manual_play(self, host: str, token: str, visit: SiteRequest) -> web.StreamResponse:
        reply, new_state = manual_play.serve_manual_play(self._episodes, host, token, visit)
        response = _response(reply)
        if new_state is not None:
            response.set_cookie(EPISODE_COOKIE, new_state, httponly=True, samesite="Lax")
        return response

    async def _answer(self, live: LiveEpisode, host: str, visit: SiteRequest) -> SiteResponse:
        """Answer a visit as the faults have it."""
        faults = self.faults
        fault = faults.draw_fault(live.name, live.count(host))
        if fault.delay:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.closing.wait(), fault.delay)
        if host in faults.blocked_hosts and live.pages[host] > faults.blocked_after:
            return render_page("captcha.html", 403, host=host, reference=f"{host}-{live.requests}")
        if fault.error:
            return _render_error(visit)
        reply = find_site(host).answer(live.state(host), visit)
        if reply.location is not None:
            return reply
        if fault.blank:
            return SiteResponse("", reply.status)
        return SiteResponse(
            add_padding(reply.body, faults.heavy_nodes, ENDLESS if faults.endless else None), reply.status
        )


async def serve_forever(
    port: int, faults: FaultConfig | None = None, *, started: Callable[[str], None] | None = None
) -> None:
    """Serve the sites for people until cancelled: `/_/` on each site starts an episode and scores it.

    `started` is told the address once the sites can be visited. Raises `UsageError` when the port is taken.
    """
    async with SiteServer(port=port, faults=faults, by_hand=True) as server:
        if started is not None:
            started(server.address)
        await server.closing.wait()


async def _read(request: web.Request) -> SiteRequest:
    form: dict[str, tuple[str, ...]] = {}
    if request.method == "POST" and request.content_type == "application/x-www-form-urlencoded":
        posted = await request.post()
        form = {name: tuple(str(value) for value in posted.getall(name)) for name in posted}
    method = "GET" if request.method == "HEAD" else request.method
    return SiteRequest(method=method, path=request.path, query=dict(request.query), form=form)


def _render_error(visit: SiteRequest) -> SiteResponse:
    """Return the page of an internal error, with a button that sends the same request again."""
    fields = [(name, value) for name, values in visit.form.items() for value in values]
    if visit.method == "GET":
        fields = list(visit.query.items())
    return render_page("failed.html", 503, method=visit.method.lower(), path=visit.path, fields=fields)


def _response(reply: SiteResponse) -> web.Response:
    from aiohttp import web

    headers = {"Cache-Control": "no-store"}
    if reply.location is not None:
        headers["Location"] = reply.location
    return web.Response(text=reply.body, status=reply.status, content_type="text/html", headers=headers)
