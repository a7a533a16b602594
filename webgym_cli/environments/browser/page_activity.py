"""Network activity of a page from CDP events: pending navigations and requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

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
                self.mark()  # they belonged to the document before
