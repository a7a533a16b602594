"""An HTTP server, on the loopback interface unless another address is given."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Sequence
from typing import Any, Self

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from webgym_cli.errors import UsageError, WebGymError

# Seconds that open requests have to finish on shutdown.
_SHUTDOWN = 1.0
_BACKLOG = 1024
# What clients cause that send no HTTP, no UTF-8, or leave in the middle of a body.
_CLIENT_ERRORS = (HttpProcessingError, web.RequestPayloadError, ConnectionResetError, UnicodeDecodeError)


class LocalServer:
    """An aiohttp application, as an async context manager."""

    def __init__(self, app: web.Application, port: int, host: str = "127.0.0.1") -> None:
        """`port`: 0 for any free port."""
        self.closing = asyncio.Event()
        """Set when the server stops, to end all waiting handlers."""
        self._app = app
        self._port = port
        self._host = host
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        """Start listening. Raises `UsageError` if the port is taken."""
        logging.getLogger("aiohttp.server").addFilter(is_ours)
        listening = open_socket(self._host, self._port)
        runner = web.AppRunner(self._app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        await web.SockSite(runner, listening, backlog=_BACKLOG).start()
        self._runner = runner
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop listening and end open requests."""
        self.closing.set()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @property
    def address(self) -> str:
        """`HOST:PORT`. Raises `RuntimeError` if the server is not running."""
        if self._runner is None:
            raise RuntimeError("nothing is being served")
        return format_address(self._runner.addresses[0])


class SecretServer(LocalServer):
    """A server of pages for one person. Its address holds a secret: no other page, and no other user, reaches it."""

    def __init__(self, port: int = 0) -> None:
        self.root = f"/{secrets.token_urlsafe(12)}"
        """Path of the first page, below which are all others."""
        self.app = web.Application(middlewares=[self._refuse_other_hosts])
        super().__init__(self.app, port)

    @property
    def url(self) -> str:
        """Address of the first page."""
        return f"http://{self.address}{self.root}/"

    @web.middleware
    async def _refuse_other_hosts(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # a name that an attacker points at 127.0.0.1 would make the page one of his own site
        if request.host != self.address:
            raise web.HTTPForbidden(text="another host name")
        try:
            response = await handler(request)
        except WebGymError as error:
            raise web.HTTPBadRequest(text=" ".join([str(error), error.hint])) from error
        response.headers["Cache-Control"] = "no-store"
        return response


def is_ours(record: logging.LogRecord) -> bool:
    """Whether an error is the server's, for its logger: those of clients would fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], _CLIENT_ERRORS))


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises `UsageError` if the port is taken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        message = f"port {port} of {host} can't be listened on: {error.strerror or error}"
        raise UsageError(message, hint="choose another port; 0 takes a free one") from error


def local_address(host: str) -> str:
    """Return the address at which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


def format_address(name: Sequence[Any]) -> str:
    """Return the name of a socket as `HOST:PORT`, as it stands in a URL."""
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def respond(page: bytes) -> web.Response:
    """Return a rendered page as a response."""
    return web.Response(body=page, content_type="text/html", charset="utf-8")
