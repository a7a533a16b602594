"""The page on which a person does a task: it shows and drives the browser, and is served on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from webgym_cli.errors import BoundaryError
from webgym_cli.record.live import LiveTask
from webgym_cli.records.action import Action
from webgym_cli.util.html_page import render_page
from webgym_cli.util.local_server import SecretServer, respond


class RecordServer(SecretServer):
    """The server."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.message = ""
        """What became of the last recording."""
        self._live: LiveTask | None = None
        self._answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.app.router.add_get(f"{self.root}/", self._show_page)
        self.app.router.add_get(f"{self.root}/picture", self._show_picture)
        self.app.router.add_post(f"{self.root}/{{what}}", self._take)

    async def record(self, live: LiveTask) -> str | None:
        """Let the person do a task. Returns the answer, which may be empty; None if the person skips the task."""
        self._answer = asyncio.get_running_loop().create_future()
        self._live, live.message = live, self.message
        try:
            return await self._answer
        finally:
            self._live = None

    async def _show_page(self, request: web.Request) -> web.Response:
        style = "../inspect/episode.css"
        page = render_page(Path(__file__).parent, "record.html", "record", style=style, script="record.js")
        return respond(page)

    async def _show_picture(self, request: web.Request) -> web.Response:
        try:
            png = await self._live.screenshot() if self._live else b""
        except BoundaryError:  # the next picture shows the page, or the next action why there is none
            png = b""
        return web.Response(body=png, content_type="image/png", status=200 if png else 204)

    async def _take(self, request: web.Request) -> web.Response:
        live, what = self._live, request.match_info["what"]
        if live is None:
            return web.json_response({"message": self.message or "The browser is started …"})
        try:
            given = await request.json()
            action = Action.model_validate(given) if what == "act" else None
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        if action:
            await live.act(action)
        elif what == "undo":
            await live.undo()
        elif what in ("done", "skip") and not self._answer.done():
            self._answer.set_result(str(given.get("answer", "")) if what == "done" else None)
            live.message = "The actions are replayed …"
        return web.json_response(live.describe())
