"""MCP's handshake and sessions over HTTP. OpenEnv has the tools, and other methods for its sessions."""

from __future__ import annotations

import json
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import webgym_cli
from webgym_cli.env_server.adapter import NAME

_PATH = "/mcp"
_HEADER = "Mcp-Session-Id"
# The protocol's revisions with this handshake, the newest last; a client that asks for another one is offered that.
_VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")


class McpSessions:
    """ASGI application: answers `initialize`, notifications and DELETE, and hands requests on with their session.

    Requests without the header of a session go on as they are: OpenEnv's clients name the session in the parameters.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._openenv = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://openenv", timeout=None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app
        if scope["type"] == "http" and scope["path"] == _PATH and scope["method"] in ("POST", "DELETE"):
            app = await self._answer(Request(scope, receive))
        await app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        session, body = request.headers.get(_HEADER), await request.body()
        if request.method == "DELETE":
            closed = await self._ask("openenv/session/close", {"session_id": session})
            return Response(status_code=404 if "error" in closed else 204)
        try:
            message = json.loads(body)
            method, params, number = message["method"], message.get("params") or {}, message.get("id")
            params.keys()
            if not isinstance(number, str | int | None):
                raise TypeError(number)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            return await self._forward(body)  # OpenEnv says what is wrong with it
        if method == "initialize":
            return await self._initialize(number, params.get("protocolVersion"))
        if isinstance(method, str) and method.startswith("notifications/"):
            return Response(status_code=202)
        if session is None:
            return await self._forward(body)
        if method == "ping":
            return _respond(number, {"result": {}})
        answer = await self._ask(method, {**params, "session_id": session})
        is_unknown = answer.get("error", {}).get("message") == f"Unknown session_id: {session}"
        return _respond(number, answer, 404 if is_unknown else 200)  # 404: the client begins another session

    async def _initialize(self, number: str | int | None, version: Any) -> Response:
        """Open a session, or answer why not, such as too many of them."""
        opened = await self._ask("openenv/session/create", {})
        if "error" in opened:
            return _respond(number, opened)
        result: dict[str, Any] = {
            "protocolVersion": version if version in _VERSIONS else _VERSIONS[-1],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": webgym_cli.__version__},
        }
        answer = _respond(number, {"result": result})
        answer.headers[_HEADER] = opened["result"]["session_id"]
        return answer

    async def _ask(self, method: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Return OpenEnv's answer to a request."""
        message = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        answer: dict[str, Any] = json.loads((await self._forward(json.dumps(message).encode())).body)
        return answer

    async def _forward(self, body: bytes) -> Response:
        answer = await self._openenv.post(_PATH, content=body, headers={"Content-Type": "application/json"})
        return Response(answer.content, answer.status_code, media_type="application/json")


def _respond(number: str | int | None, answer: dict[str, Any], status: int = 200) -> Response:
    """Write an answer in ASCII, which a lone surrogate can be written in, too."""
    content = json.dumps({**answer, "jsonrpc": "2.0", "id": number})
    return Response(content, status, media_type="application/json")
