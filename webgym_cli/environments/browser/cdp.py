"""Direct connection to a page over the Chrome DevTools Protocol (CDP), bypassing Playwright's driver.

Playwright creates contexts, loads pages and reports popups, dialogs and downloads. The calls of every step (a script, a
screenshot, a click) use a separate WebSocket, which saves about a sixth of a step's CPU time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from typing import Any, Protocol

import websockets
from websockets.asyncio.client import ClientConnection, connect

from webgym_cli.environments.browser.page_activity import DOMAINS, PageActivity

_CRASHED = "the page crashed"


class CDPSender(Protocol):
    """Sends commands to one page. Playwright's `CDPSession` also implements it; remote browsers use that one."""

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the command's result. Raises `CDPError`, or Playwright's own error."""
        ...


class CDPError(Exception):
    """A command failed; the message is Chrome's, or that the connection closed."""


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
