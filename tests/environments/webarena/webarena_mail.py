"""The fixture mail site as one of WebArena's: at an address of its own, with sessions behind a cookie."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from aiohttp import web

from webgym_cli.environments.fixture_sites.mail import MailState, mailbox
from webgym_cli.environments.fixture_sites.mail_pages import PAGES
from webgym_cli.environments.fixture_sites.web import SiteRequest

SEED = 7
USER, PASSWORD = mailbox(SEED).user, mailbox(SEED).password


@dataclass
class MailServer:
    """Serves the mail site on 127.0.0.1 to whoever comes; knows a visitor by the cookie `cookie`."""

    cookie: str = "session"
    port: int = 0
    status: int = 200
    """Of every answer, if it is not 200."""
    logins: int = 0
    """Forms with the right password so far."""
    resets: int = 0
    """POSTs to `/reset` so far: each forgets all sessions, as a container that starts anew."""
    reset_status: int = 200
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once somebody asked for a page."""
    sessions: dict[str, MailState] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> MailServer:
        app = web.Application()
        app.router.add_post("/reset", self._reset)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _reset(self, request: web.Request) -> web.Response:
        self.resets += 1
        self.sessions.clear()
        return web.Response(status=self.reset_status)

    async def _serve(self, request: web.Request) -> web.Response:
        self.came.set()
        if self.status != 200:
            return web.Response(status=self.status, text="not now")
        token = request.cookies.get(self.cookie, "")
        if token not in self.sessions:
            token = secrets.token_hex(8)
            self.sessions[token] = MailState(SEED)
        state = self.sessions[token]
        form = {name: (value,) for name, value in parse_qsl(await request.text())}
        was_in = state.logged_in
        response = PAGES.answer(state, SiteRequest(request.method, request.path, dict(request.query), form))
        self.logins += state.logged_in and not was_in
        response.set_cookie(self.cookie, token, httponly=True)
        return response


def mail_settings(site: str, server: MailServer) -> list[str]:
    """The settings by which a site of WebArena is this mail site."""
    return [
        f"sites.{site}.url={server.url}",
        f"sites.{site}.accounts.user.account={USER}",
        f"sites.{site}.login_page=/login",
        f"sites.{site}.account_field=label=User name",
        f"sites.{site}.password_field=label=Password",
        f"sites.{site}.proof_page=/folder/inbox",
        f"sites.{site}.proof=text=Log out",
    ]
