"""A local web server for what the laboratory has no page for; it counts every request that reaches it."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web


@dataclass
class OddServer:
    """Serves `pages` (path -> HTML) and some odd paths on 127.0.0.1, whatever the Host header says."""

    pages: dict[str, str] = field(default_factory=dict)
    hits: list[str] = field(default_factory=list)
    """`METHOD PATH` of every request so far."""
    hosts: list[str] = field(default_factory=list)
    """Their Host headers."""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once somebody visits `/silent`."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a visitor of `/silent` has hung up."""
    slow_seconds: float = 1.0
    _runner: web.AppRunner | None = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def port(self) -> int:
        return self._runner.addresses[0][1]

    @property
    def place(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> OddServer:
        app = web.Application(client_max_size=32 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing.set()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.hits.append(f"{request.method} {request.path}")
        self.hosts.append(request.host)
        special = getattr(self, f"_{request.path.strip('/').replace('-', '_')}", None)
        if special is not None:
            return await special(request)
        if request.path == "/private":
            if request.headers.get("Authorization") == f"Basic {b64encode(b'ann:s3cret:x').decode()}":
                return _html("<title>Inside</title><button>In</button>")
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="here"'}, text="No.")
        if request.path == "/endless":
            raise web.HTTPFound("/endless")
        if request.path == "/paper.pdf":
            return web.Response(body=b"%PDF-1.4\n%%EOF\n", content_type="application/pdf")
        if request.path in self.pages:
            return _html(self.pages[request.path])
        return _html("<h1>Not found</h1>", 404)

    async def _later(self, request: web.Request) -> web.StreamResponse:
        """A WebSocket that says what it was told, 0.4 s later."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await asyncio.sleep(0.4)
            await socket.send_str(message.data)
        return socket

    async def _echo(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        return web.Response(text=f"{len(body)} {hashlib.sha256(body).hexdigest()}")

    async def _large(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(5 * 2**20))

    async def _pieces(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for number in range(50):
            await response.write(f"{number};".encode())
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(f"heard {message.data}")
        return socket

    async def _slow_form(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.slow_seconds)
        return _html("<title>Thanks</title><h1>Thanks</h1><button>Done</button>")

    async def _slow_data(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.slow_seconds)
        return web.json_response({"text": "fetched"})

    async def _once(self, request: web.Request) -> web.StreamResponse:
        """Answer the first time; later never."""
        if self.hits.count("GET /once") > 1:
            await self._closing.wait()
        return _html("<title>once</title><h1>once</h1>")

    async def _hang_up(self, request: web.Request) -> web.StreamResponse:
        request.transport.close()
        return web.Response()

    async def _silent(self, request: web.Request) -> web.StreamResponse:
        self.came.set()
        try:
            await self._closing.wait()
        finally:
            self.left.set()
        return web.Response()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        await response.write(b"<!doctype html><title>Half</title><h1>The first half</h1><button>Here</button>")
        await self._closing.wait()
        return response

    async def _check(self, request: web.Request) -> web.StreamResponse:
        """Shut the visitor out at first; its own page lets it in soon after."""
        if "passed" in request.cookies:
            return _html("<title>Inside</title><h1>Welcome</h1>")
        script = "document.cookie = 'passed=1; path=/'; setTimeout(() => location.reload(), 200)"
        return _html(f"<title>Just a moment</title><h1>Checking</h1><script>{script}</script>", 403)

    async def _cached(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="cached", headers={"Cache-Control": "max-age=3600"})

    async def _away(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": request.query["to"]})


def _html(body: str, status: int = 200) -> web.Response:
    page = f"<!doctype html>{body}"
    return web.Response(text=page, status=status, content_type="text/html", headers={"Cache-Control": "no-store"})
