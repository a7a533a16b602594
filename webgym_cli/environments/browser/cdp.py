"""Direct connection to a page over the Chrome DevTools Protocol (CDP), bypassing Playwright's driver; a page's traffic.

Playwright creates contexts, loads pages and reports popups, dialogs and downloads. The calls of every step (a script, a
screenshot, a click) use a separate WebSocket, which saves about a sixth of a step's CPU time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import websockets
from websockets.asyncio.client import ClientConnection, connect

_CRASHED = "the page crashed"
# CDP domains that must be enabled for these events.
DOMAINS = ("Page", "Network")
EVENTS = (
    "Page.frameRequestedNavigation",
    "Page.frameStartedNavigating",
    "Page.frameNavigated",
    "Page.frameStoppedLoading",
    "Network.requestWillBeSent",
    "Network.responseReceived",
    "Network.loadingFinished",
    "Network.loadingFailed",
    "Network.webSocketFrameSent",
    "Network.webSocketFrameReceived",
    "Network.webSocketClosed",
)
# Seconds for a WebSocket to answer; one that does not is not waited for again.
_SOCKET_SECONDS = 1.0
# Resource types whose responses change the visible page; images are tracked in the page itself.
_AWAITED = frozenset({"Document", "XHR", "Fetch", "Script", "Stylesheet"})
# Maximum number of tracked requests; a page with more is not waited for.
_MOST = 500


class CDPSender(Protocol):
    """Sends commands to one page. Playwright's `CDPSession` also implements it; remote browsers use that one."""

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the command's result. Raises `CDPError`, or Playwright's own error."""
        ...


class CDPError(Exception):
    """A command failed; the message is Chrome's, or that the connection closed."""


class PageActivity:
    """One page's traffic since the last `mark`."""

    def __init__(self, main_frame: str) -> None:
        """`main_frame`: id of the page's main frame, which is also the page's target id."""
        self._main = main_frame
        self.documents = 0
        """Number of committed documents."""
        self.navigating = False
        """Whether a navigation is pending."""
        self.status = 0
        """HTTP status of the newest document; 0 for none."""
        self._requests: set[str] = set()
        self._sockets: dict[str, float] = {}
        """Send times of the unanswered messages, by WebSocket."""
        self._silent: set[str] = set()
        self._changed = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether a navigation or a request that began since the mark has not ended, or a WebSocket was asked."""
        late = time.monotonic() - _SOCKET_SECONDS
        for socket in [socket for socket, sent in self._sockets.items() if sent < late]:
            del self._sockets[socket]
            self._silent.add(socket)
        return self.navigating or bool(self._requests) or bool(self._sockets)

    @property
    def pending(self) -> int:
        """Number of requests since the mark that have not ended."""
        return len(self._requests)

    def mark(self) -> None:
        """Forget the requests so far: those that never end are not waited for again."""
        self._requests.clear()
        self._sockets.clear()

    def stop(self) -> None:
        """Mark the pending navigation as cancelled."""
        self.navigating = False
        self._changed.set()

    async def change(self, seconds: float) -> None:
        """Wait for the next event, at most `seconds`."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until an event has made a condition true."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def note(self, method: str, params: Mapping[str, Any]) -> None:
        """Process a CDP event; events outside `EVENTS` are ignored."""
        if method not in EVENTS:
            return
        if method.startswith("Page."):
            self._note_frame(method, params)
        elif method == "Network.requestWillBeSent":
            if params.get("type") in _AWAITED and len(self._requests) < _MOST:
                self._requests.add(params["requestId"])
        elif method == "Network.responseReceived":
            if params.get("type") == "Document" and params.get("frameId") == self._main:
                self.status = int(params["response"]["status"])
        elif method == "Network.webSocketFrameSent":
            if params["requestId"] not in self._silent:
                self._sockets.setdefault(params["requestId"], time.monotonic())
        elif method.startswith("Network.webSocket"):
            self._sockets.pop(params["requestId"], None)
        else:
            self._requests.discard(params["requestId"])
        self._changed.set()

    def _note_frame(self, method: str, params: Mapping[str, Any]) -> None:
        frame = params["frame"]["id"] if "frame" in params else params.get("frameId")
        if frame != self._main:
            return
        if method == "Page.frameRequestedNavigation":
            self.navigating = self.navigating or params.get("disposition") == "currentTab"
        elif method == "Page.frameStartedNavigating":
            if "samedocument" not in str(params.get("navigationType", "")).lower():
                self.navigating = True
        else:
            self.navigating = False
            if method == "Page.frameNavigated":
                self.documents += 1
                self._requests.clear()  # they belonged to the document before
                self._sockets.clear()


class CDPConnection:
    """One WebSocket to a browser, shared by all of its pages."""

    def __init__(self, socket: ClientConnection) -> None:
        """Use `open`."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._pages: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        self._crashed: set[str] = set()
        self._traffic: dict[str, PageActivity] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, address: str) -> CDPConnection:
        """Connect to a browser's `ws://` address. Raises `OSError` or `websockets.WebSocketException`."""
        # Loopback: compressing would cost more than it saves. A screenshot may be large.
        socket = await connect(address, max_size=None, compression=None, ping_interval=None, proxy=None)
        connection = cls(socket)
        await connection.call("Target.setDiscoverTargets", {"discover": True, "filter": [{"type": "page"}]})
        return connection

    async def attach(self, target: str, traffic: PageActivity) -> CDPSession:
        """Return a CDP session of a page by its target id; its network events go to `traffic`. Raises `CDPError`."""
        answer = await self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        session = str(answer["sessionId"])
        self._targets[session], self._traffic[session] = target, traffic
        return CDPSession(self, session)

    async def call(self, method: str, params: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """Send a command to the browser, or to a page's session. Raises `CDPError`."""
        if self._targets.get(session) in self._crashed:
            raise CDPError(_CRASHED)
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        self._waiting[number] = session, answer
        try:
            await self._socket.send(json.dumps(message))
            return await answer
        except websockets.WebSocketException as error:
            raise CDPError("browser closed: the connection to it ended") from error
        finally:
            self._waiting.pop(number, None)

    def is_open(self, session: str) -> bool:
        """Whether the page of a session is open, by the events received so far."""
        # The session detaches first and its pending commands fail; the event that its page closed arrives later.
        return self._targets.get(session) in self._pages

    def open_pages(self, context: str) -> int:
        """Return the number of pages in a browser context. Playwright learns of popups later than this connection."""
        return Counter(self._pages.values())[context]

    async def close(self) -> None:
        """Close the connection; pending commands fail."""
        await self._socket.close()
        await self._reader

    async def _read(self) -> None:
        try:
            async for text in self._socket:
                message = json.loads(text)
                if "id" in message:
                    self._answer(message)
                else:
                    self._note(message)
        except websockets.WebSocketException:
            pass  # an unclean end, as when the browser is killed; pending commands fail below
        finally:
            self._fail("browser closed: the connection to it ended")

    def _answer(self, message: dict[str, Any]) -> None:
        _, answer = self._waiting.get(message["id"], ("", None))
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(CDPError(str(message["error"].get("message", message["error"]))))
        else:
            answer.set_result(message.get("result", {}))

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message["params"]
        if method.startswith(DOMAINS):
            if traffic := self._traffic.get(message.get("sessionId", "")):
                traffic.note(method, params)
        elif method == "Target.targetCreated":
            info = params["targetInfo"]
            self._pages[info["targetId"]] = info.get("browserContextId", "")
        elif method == "Target.targetDestroyed":
            self._pages.pop(params["targetId"], None)
            self._crashed.discard(params["targetId"])
        elif method == "Target.targetCrashed":
            self._crashed.add(params["targetId"])
            for session in [session for session, target in self._targets.items() if target == params["targetId"]]:
                self._fail(_CRASHED, session)
        elif method == "Target.detachedFromTarget":
            self._traffic.pop(params["sessionId"], None)
            self._targets.pop(params["sessionId"], None)
            self._fail("target closed", params["sessionId"])

    def _fail(self, reason: str, session: str | None = None) -> None:
        for of, answer in list(self._waiting.values()):
            if not answer.done() and session in (None, of):
                answer.set_exception(CDPError(reason))


class CDPSession:
    """One page over a `CDPConnection`."""

    def __init__(self, connection: CDPConnection, session: str) -> None:
        self._connection = connection
        self._session = session

    @property
    def is_open(self) -> bool:
        """Whether the page is open."""
        return self._connection.is_open(self._session)

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the command's result. Raises `CDPError`."""
        return await self._connection.call(method, params, self._session)
