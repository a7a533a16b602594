"""The environment server: OpenEnv's routes before a `SessionHost`, on the loopback interface or behind a token."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import uvicorn
from fastapi.exceptions import RequestValidationError
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.types import ConcurrencyConfig, ServerMode
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webgym_cli.env_server.adapter import CONNECTION, NAME, BrowserEnvironment, WebAction, WebObservation
from webgym_cli.env_server.host import SessionHost
from webgym_cli.env_server.mcp_sessions import McpSessions
from webgym_cli.env_server.sessions import ClientSession
from webgym_cli.util.local_server import format_address, is_ours, open_socket
from webgym_cli.util.secrets import read_bearer, require_token

# Environment variable of the token without which nobody may connect.
TOKEN_VARIABLE = "ENV_SERVER_TOKEN"
# Bytes of a request, or of a message: actions are small.
MAX_BODY = 2**20
# Seconds that open connections have to finish on shutdown.
_SHUTDOWN = 1
# Messages of a client that are read before it gets its answers.
_UNREAD = 4


class _Guard:
    """Refuses, before OpenEnv reads anything, what has no token, comes from a web page, or is too large.

    It ends the sessions of a WebSocket at once when that is closed: OpenEnv would see it only after the current action.
    """

    def __init__(self, app: ASGIApp, host: SessionHost, token: str) -> None:
        self._app, self._host, self._token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not (refusal := self._find_refusal(scope)):
            # A socket that is attached to a session of MCP's HTTP requests doesn't own it.
            is_owner = scope["type"] == "websocket" and b"session_id=" not in scope["query_string"]
            await (self._hold(scope, receive, send) if is_owner else self._app(scope, receive, send))
        elif scope["type"] == "http":
            await PlainTextResponse(refusal[1], status_code=refusal[0])(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        sessions = set[ClientSession]()
        CONNECTION.set(sessions)
        messages = asyncio.Queue[Message](_UNREAD)

        async def read() -> None:
            while (message := await receive())["type"] != "websocket.disconnect":
                await messages.put(message)
            for session in sessions:
                self._host.close_session(session)
            await messages.put(message)

        async def answer(message: Message) -> None:
            # To a client that has left: OpenEnv would answer the failure with an error, which then is logged.
            with suppress(OSError):
                await send(message)

        reading = asyncio.create_task(read())
        try:
            await self._app(scope, messages.get, answer)
        finally:
            reading.cancel()

    def _find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if b"origin" in headers:  # the user's own browser, sent here by a page: loopback is no protection from it
            return 403, "requests of web pages are refused"
        given = read_bearer(headers.get(b"authorization", b"").decode(errors="surrogateescape"))
        same = hmac.compare_digest(*(token.encode(errors="surrogateescape") for token in (given, self._token)))
        if self._token and not same:
            return 401, f"the token of {TOKEN_VARIABLE} is needed: Authorization: Bearer TOKEN"
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or not length.isdigit() or int(length) > MAX_BODY:
            return 413, f"a body has a Content-Length, of at most {MAX_BODY}"
        return None


def make_app(host: SessionHost, token: str, sessions: int, session_timeout: float) -> ASGIApp:
    """Return the ASGI application. Within the loop that serves it."""
    WebAction.served_schema = host.function["parameters"]
    app: Any = create_fastapi_app(
        partial(BrowserEnvironment, host, asyncio.get_running_loop()),
        WebAction,
        WebObservation,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=session_timeout),
        env_name=NAME,
        # The simulation mode adds HTTP routes that open a browser context a request, outside of all sessions.
        mode=ServerMode.PRODUCTION,
    )
    app.add_exception_handler(RequestValidationError, _refuse_values)
    return _Guard(McpSessions(app), host, token)


async def _refuse_values(request: Request, error: RequestValidationError) -> Response:
    """Answer a body of wrong types. Without the values: FastAPI can't write infinite numbers, nor lone surrogates."""
    detail = [{name: one[name] for name in ("type", "loc", "msg")} for one in error.errors()]
    return Response(json.dumps({"detail": detail}), status_code=422, media_type="application/json")


@asynccontextmanager
async def serve_host(
    host: SessionHost, address: str, port: int, sessions: int, session_timeout: float
) -> AsyncIterator[str]:
    """Serve within the block; yields the base URL. Raises `UsageError` if the port is taken, or a token is missing."""
    token = require_token(TOKEN_VARIABLE, address)
    with open_socket(address, port) as listening:
        config = uvicorn.Config(
            make_app(host, token, sessions, session_timeout),
            log_level="error",
            access_log=False,
            ws_max_size=MAX_BODY,
            ws_per_message_deflate=False,  # screenshots are compressed already
            timeout_graceful_shutdown=_SHUTDOWN,
        )
        logging.getLogger("uvicorn.error").addFilter(is_ours)
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext  # they are webgym's, whose clean-up closes the browsers
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://{format_address(listening.getsockname())}"
        finally:
            server.should_exit = True
            await serving
