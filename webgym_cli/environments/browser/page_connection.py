"""Script evaluation and screenshots of one page over its CDP session.

Scripts run in isolated worlds, in which they see a page's documents but share no JavaScript object with the page's
scripts: a page that declares its own `Map`, or overrides prototypes, does not change what ours see or do.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from webgym_cli.environments.browser.cdp import CDPConnection, CDPSender, CDPSession
from webgym_cli.environments.browser.failures import SESSION_GONE, ScriptError, attempt, has_sign
from webgym_cli.environments.browser.page_activity import DOMAINS, EVENTS, PageActivity
from webgym_cli.jobs.workers import race

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

# Parameters of a screenshot. Fast compression saves 6 ms of CPU time for 1280x768 pixels, a seventh of a step; files of
# nine pages were 1.4 to 3 times as large.
SCREENSHOT = {"format": "png", "optimizeForSpeed": True}
# Chrome's messages if there is nothing to draw at the moment, between two documents.
_NOT_NOW = ("unable to capture screenshot", "not attached to an active page")
_PAUSE = 0.05
# Seconds for a picture to come after its document was replaced: mostly it does.
_LAST_CHANCE = 0.3
# The injected scripts are stored under a symbol that page scripts do not encounter.
PAGE_JS = "window[Symbol.for('webgym')]"
_NAME = "webgym"
_REPLACED_MESSAGE = "the page replaced its document"
_GONE = ("cannot find context", "uniquecontextid not found", _REPLACED_MESSAGE)
# Maximum number of successive documents in which a call is retried.
_REPLACED = 5


@dataclass(frozen=True, slots=True)
class FrameDocument:
    """A frame that its page can't read; without arguments the page itself."""

    id: str = ""
    """Chrome's id of the frame."""
    hops: tuple[tuple[str, int], ...] = ()
    """How to find it from the page: the frames on the way, each with the number there of the next one's element."""


@dataclass(slots=True)
class IsolatedWorld:
    """An isolated world of one document."""

    channel: CDPSender
    """Sends commands to the process of the document."""
    context: int
    """Chrome's number of the world."""
    known: set[int] = field(default_factory=set)
    """Nodes whose listeners were passed to our scripts."""
    document: str = ""
    """Chrome's id of the document in the page's own world, once it is known."""


class IsolatedWorlds:
    """The worlds of a page's frames, each made on first use. Without a script, calls run in the page's own world."""

    def __init__(
        self, channel: CDPSender, main: str, script: str, direct: CDPConnection | None, traffic: PageActivity
    ) -> None:
        """`main`: id of the main frame. `script`: runs in each new world. `traffic`: of the page with its frames."""
        self.channel = channel
        self.script = script
        self._main = main
        self._traffic = traffic
        self._direct = direct
        self._channels = {main: channel}
        self._worlds: dict[str, IsolatedWorld] = {}

    async def call(self, function: str, argument: object, frame: str = "") -> Any:
        """Call a JavaScript function in a frame (default: the main one). Raises `ScriptError` where it throws."""
        expression = f"({function})({json.dumps(argument)})"
        parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        return (await self.evaluate(parameters, frame)).get("value")

    async def evaluate(self, parameters: dict[str, Any], frame: str = "") -> dict[str, Any]:
        """Return the result object of an expression. A document that was replaced before the call gets a new world.

        Raises `TimeoutError` if each of `_REPLACED` documents was.
        """
        for _ in range(_REPLACED):
            try:
                world = await self.find(frame)
                place = {"contextId": world.context} if self.script else {}
                answer = await world.channel.send("Runtime.evaluate", {**parameters, **place})
                if "exceptionDetails" in answer and self.script and not await self._has_script(world):
                    raise ScriptError(_REPLACED_MESSAGE)
            except Exception as error:
                self._worlds.pop(frame, None)
                if frame and has_sign(error, SESSION_GONE):  # the frame is in another process now
                    self._channels.pop(frame, None)
                if not has_sign(error, _GONE):
                    raise
                continue
            if "exceptionDetails" in answer:
                details = answer["exceptionDetails"]
                raise ScriptError(details.get("exception", {}).get("description") or details.get("text", "it threw"))
            result: dict[str, Any] = answer["result"]
            return result
        raise TimeoutError(f"failed: {_REPLACED_MESSAGE} again and again")

    async def find(self, frame: str = "") -> IsolatedWorld:
        """Return the world of a frame."""
        if not self.script:
            return IsolatedWorld(self.channel, 0)
        if frame not in self._worlds:
            channel = self._channels.get(frame or self._main, self.channel)
            created = await channel.send(
                "Page.createIsolatedWorld", {"frameId": frame or self._main, "worldName": _NAME}
            )
            world = IsolatedWorld(channel, int(created["executionContextId"]))
            # A document that is being replaced may not run the script to its end.
            complete = f"{self.script}\n;Boolean({PAGE_JS})"
            ran = await channel.send("Runtime.evaluate", {"expression": complete, "contextId": world.context})
            if ran["result"].get("value") is not True:
                raise ScriptError(_REPLACED_MESSAGE)
            self._worlds[frame] = world
        return self._worlds[frame]

    async def _has_script(self, world: IsolatedWorld) -> bool:
        """Whether our script is still in a world: the next document may take over its context, empty."""
        place = {"contextId": world.context}
        answer = await world.channel.send("Runtime.evaluate", {"expression": f"Boolean({PAGE_JS})", **place})
        return answer["result"].get("value") is True

    async def enter(self, expression: str, frame: str, page: Page, seconds: float) -> str:
        """Return the id of the frame whose element an expression in another frame returns; it can be called then."""
        world = await self.find(frame)
        element = await self.evaluate({"expression": expression}, frame)
        node = (await world.channel.send("DOM.describeNode", {"objectId": element["objectId"]}))["node"]
        inner = str(node["frameId"])
        # A frame without a content document is in another process.
        if inner not in self._channels:
            remote = "contentDocument" not in node
            self._channels[inner] = await self._attach(inner, page, seconds) if remote else world.channel
            if remote:
                await self._channels[inner].send("Network.enable")
        return inner

    async def _attach(self, frame: str, page: Page, seconds: float) -> CDPSender:
        if self._direct is not None:
            return await self._direct.attach(frame, self._traffic)
        for one in page.frames[1:]:
            # fails for a frame in its page's process
            session = await attempt(page.context.new_cdp_session(one), seconds)
            if session and (await session.send("Target.getTargetInfo"))["targetInfo"]["targetId"] == frame:
                return session
        raise LookupError("the frame is gone or does not answer")


@dataclass(frozen=True, slots=True)
class PageConnection:
    """Connection to one page. Its methods raise the errors of the CDP session and have no deadline."""

    channel: CDPSender
    traffic: PageActivity
    context: str
    """Chrome's id of the page's context."""
    worlds: IsolatedWorlds
    """Where our scripts run."""

    @property
    def is_open(self) -> bool:
        """Whether the page is open, by the events received so far."""
        return not isinstance(self.channel, CDPSession) or self.channel.is_open

    async def capture_screenshot(self) -> bytes:
        """Return the viewport as PNG bytes.

        A document that is replaced may take the picture's request with it: then the next one is asked.
        """
        while True:

            def is_replaced(before: int = self.traffic.documents) -> bool:
                return self.traffic.documents > before

            drawing = self.channel.send("Page.captureScreenshot", SCREENSHOT)
            try:
                async with race(drawing, self.traffic.until(is_replaced)) as (drawn, _):
                    if drawn.done() or (await asyncio.wait((drawn,), timeout=_LAST_CHANCE))[0]:
                        return base64.b64decode(drawn.result()["data"])
            except Exception as error:
                if not has_sign(error, _NOT_NOW) or not self.is_open:
                    raise
                await asyncio.sleep(_PAUSE)

    async def stop_loading(self) -> None:
        """Cancel the pending navigation. Between two documents there is none that could be."""
        try:
            await self.channel.send("Page.stopLoading")
        except Exception as error:  # a page that never stays is mostly in between
            if not has_sign(error, _NOT_NOW) or not self.is_open:
                raise
        self.traffic.stop()


async def connect_page(
    context: BrowserContext, page: Page, direct: CDPConnection | None, script: str, *, watch: bool
) -> PageConnection:
    """Return the connection to a page: direct where there is one to its browser, else through the driver.

    `script` runs in its isolated worlds. `watch` follows its traffic. Raises `CDPError`, or Playwright's own error.
    """
    session = await context.new_cdp_session(page)
    about = (await session.send("Target.getTargetInfo"))["targetInfo"]
    traffic = PageActivity(about["targetId"])
    channel: CDPSender = session
    if direct is not None:
        await session.detach()
        channel = await direct.attach(about["targetId"], traffic)
    else:
        for event in EVENTS:
            session.on(event, partial(traffic.note, event))
    for domain in DOMAINS if watch else ():
        await channel.send(f"{domain}.enable")
    worlds = IsolatedWorlds(channel, about["targetId"], script, direct, traffic)
    return PageConnection(channel, traffic, about.get("browserContextId", ""), worlds)
