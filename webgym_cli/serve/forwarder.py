"""Authenticated HTTP proxy from other nodes to a policy server on this node's loopback.

vLLM itself listens only on loopback: its developer endpoints, needed for weight updates, let any client run engine
methods.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from webgym_cli.serve.plan import base_url
from webgym_cli.serve.ports import claim_port

# The only routes that policy clients use.
_ROUTES = (("POST", "/v1/chat/completions"), ("GET", "/version"), ("GET", "/health"))


class PolicyForwarder:
    """HTTP proxy on an address of this node that forwards requests to a loopback server."""

    def __init__(self, find_base_url: Callable[[], str], password: str = "") -> None:
        """`find_base_url` returns the server's base URL, which may change on a restart."""
        self._find_base_url = find_base_url
        self._user = f"webgym:{password or secrets.token_urlsafe()}"
        self._authorization = b"Basic " + b64encode(self._user.encode())
        self._runner: web.AppRunner | None = None
        self._session: ClientSession | None = None

    async def open(self, host: str, port: int = 0) -> str:
        """Listen on this port if it is free, else on any; return the OpenAI base URL, with user and password."""
        app = web.Application(client_max_size=0)  # no limit: prompts have screenshots
        app.add_routes([web.route(method, path, self._forward) for method, path in _ROUTES])
        # Clients set the timeouts. A client that disconnects cancels its request, at vLLM too.
        self._session = ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None))
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        claimed = await claim_port(host, 0, port)
        await web.TCPSite(self._runner, host, claimed).start()
        parts = urlsplit(base_url(host, claimed))
        return parts._replace(netloc=f"{self._user}@{parts.netloc}").geturl()

    async def close(self) -> None:
        """Stop listening and cancel the requests in flight."""
        if self._runner is not None and self._session is not None:
            await self._runner.cleanup()
            await self._session.close()

    async def _forward(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, self._authorization) or self._session is None:
            return web.Response(status=401)
        url = f"{self._find_base_url().removesuffix('/v1')}{request.path}"
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        try:
            async with self._session.request(request.method, url, data=await request.read(), headers=headers) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        except (ClientError, OSError) as error:
            return web.Response(status=502, text=f"the policy server does not answer: {type(error).__name__}")
