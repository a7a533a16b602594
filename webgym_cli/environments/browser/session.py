"""One isolated browser context with the page that the policy sees: where the browser's errors get their names."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from webgym_cli.environments.browser.channel import DirectConnection, Link, open_link
from webgym_cli.environments.browser.failures import LOST_CONTEXT, PAGE_GONE, ScriptError, close_quietly, named, says
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.traffic import Traffic
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Keyboard, Page

_POPUP_TIMEOUT = 3.0
_MAX_DIALOGS = 20


class BrowserSession:
    """One context and its current page. A popup becomes the current page; when it closes, its opener is it again.

    Every method ends within its deadline or raises `BoundaryError`; after `BROWSER_CRASHED` only `close` is of use.
    """

    def __init__(
        self,
        context: BrowserContext,
        page: Page,
        options: SessionOptions,
        direct: DirectConnection | None,
        closed: Callable[[], None],
    ) -> None:
        self.options = options
        self.dialogs: list[str] = []
        """What the page's dialogs said, oldest first; each was accepted at once (prompts with their default)."""
        self.downloads: list[str] = []
        """The names of files that pages offered; none is kept."""
        self.uses = 0
        """How many episodes it has served; counted by its owner."""
        self._sound = True
        self._crashed: set[Page] = set()
        self._context = context
        self._pages = [page]
        self._direct = direct
        self._links: dict[Page, Link] = {}
        self._when_closed: Callable[[], None] | None = closed
        self._expiry = asyncio.get_running_loop().call_later(options.life_seconds, self._expire)
        self._closing: asyncio.Task[None] | None = None
        context.on("page", self._opened)
        context.on("dialog", self._answer_dialog)

    @classmethod
    async def open(
        cls,
        context: BrowserContext,
        options: SessionOptions,
        direct: DirectConnection | None = None,
        closed: Callable[[], None] = lambda: None,
    ) -> BrowserSession:
        """Make the context's first page. `direct`: the short way to the browser's pages, where there is one."""
        context.set_default_timeout(options.action_timeout * 1000)
        context.set_default_navigation_timeout(options.navigation_timeout * 1000)
        for script in options.init_scripts:
            await context.add_init_script(script)
        page = await context.new_page()
        session = cls(context, page, options, direct, closed)
        session._watch(page)
        await session._link(page)
        return session

    @property
    def page(self) -> Page:
        """The current page."""
        return self._pages[-1]

    @property
    def pristine(self) -> bool:
        """Whether nothing happened that another episode could notice: no failure, no popup, no dialog."""
        alone = len(self._pages) == 1 and not self.page.is_closed()
        return self._sound and alone and not self.dialogs and self._closing is None

    @property
    def keyboard(self) -> Keyboard:
        """The current page's keyboard; use it within `guard`."""
        return self.page.keyboard

    @property
    def url(self) -> str:
        """The current page's address."""
        return self.page.url

    async def goto(self, url: str) -> None:
        """Load an address, until `options.wait_until`. Raises `NAVIGATION_FAILED` or `PAGE_TIMEOUT`."""
        async with self.guard("loading the page", self.options.navigation_timeout, navigation=True):
            await self.page.goto(url, wait_until=self.options.wait_until)

    async def go_back(self) -> bool:
        """Go back in history; a popup without history closes. Returns False when there is nowhere to go."""
        async with self.guard("going back", self.options.navigation_timeout, navigation=True):
            before = self.page.url
            if await self.page.evaluate("() => history.length") > 1:
                await self.page.go_back(wait_until=self.options.wait_until)
                if self.page.url != before:
                    return True
            if len(self._pages) == 1:
                return False
            await self.page.close()
            return True

    async def set_cookies(self, name: str, value: str, hosts: Iterable[str]) -> None:
        """Give the context a cookie that pages' scripts can't read, on each of these hosts."""
        async with self.guard("setting cookies"):
            await self._context.add_cookies(
                [{"name": name, "value": value, "domain": host, "path": "/", "httpOnly": True} for host in hosts]
            )

    async def evaluate(self, function: str, argument: object = None) -> Any:
        """Call a JavaScript function in the page. When the page is replaced meanwhile, it is asked once more."""
        async with self.guard("running a script in the page"):
            try:
                return await self._call(function, argument)
            except Exception as error:
                if not says(error, LOST_CONTEXT) and not self._moved_on(error):
                    raise
            await self.page.wait_for_load_state("domcontentloaded")
            return await self._call(function, argument)

    async def screenshot(self) -> bytes:
        """Return the viewport as PNG bytes, without the text caret's blinking if the page has our style."""
        async with self.guard("taking a screenshot"):
            try:
                return await self._capture()
            except Exception as error:
                if not self._moved_on(error):
                    raise
            return await self._capture()

    async def click(self, x: float, y: float) -> None:
        """Click a point of the viewport with the mouse."""
        async with self.guard("clicking"):
            channel = (await self._link(self.page)).channel
            button = {"button": "left", "clickCount": 1}
            try:
                # All at once: the browser carries them out in this order.
                await asyncio.gather(
                    channel.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y}),
                    channel.send("Input.dispatchMouseEvent", {"type": "mousePressed", "x": x, "y": y, **button}),
                    channel.send("Input.dispatchMouseEvent", {"type": "mouseReleased", "x": x, "y": y, **button}),
                )
            except Exception as error:
                if not self._moved_on(error):  # the click closed the page
                    raise

    async def move(self, x: float, y: float) -> None:
        """Move the mouse to a point of the viewport."""
        async with self.guard("moving the mouse"):
            channel = (await self._link(self.page)).channel
            await channel.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    async def wheel(self, x: float, y: float, distance: float) -> None:
        """Turn the wheel over a point: down by so many CSS pixels, or up."""
        async with self.guard("scrolling"):
            channel = (await self._link(self.page)).channel
            turn = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": distance}
            await asyncio.gather(
                channel.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y}),
                channel.send("Input.dispatchMouseEvent", turn),
            )

    async def traffic(self) -> Traffic:
        """Return what the current page is doing; quiet unless `watch_traffic` is set."""
        async with self.guard("watching the page"):
            return (await self._link(self.page)).traffic

    async def meet_popups(self) -> None:
        """Wait until a page that an action just opened is the current one. The driver hears of it later than we do."""
        if self._direct is None:
            return
        async with self.guard("waiting for a new page"):
            deadline = asyncio.get_running_loop().time() + _POPUP_TIMEOUT
            # Playwright has no event for "all pages that Chrome has are known".
            context = (await self._link(self._pages[0])).context
            while self._direct.open_pages(context) > len(self._pages):
                if asyncio.get_running_loop().time() > deadline:
                    return
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Close the context. Never raises and never hangs: what can't be closed ends with its browser."""
        self._expiry.cancel()
        if self._closing is None:
            self._closing = asyncio.create_task(close_quietly(self._context))
        await self._closing
        when_closed, self._when_closed = self._when_closed, None
        if when_closed is not None:
            when_closed()

    @asynccontextmanager
    async def guard(self, doing: str, seconds: float | None = None, *, navigation: bool = False) -> AsyncIterator[None]:
        """The one place where a deadline is set and the browser's exceptions become `BoundaryError`."""
        limit = seconds or self.options.action_timeout
        done = False
        try:
            # A little more than Playwright's own deadline, so that its better message comes first.
            async with asyncio.timeout(limit + 0.5):
                yield
            done = True
        except BoundaryError:
            raise
        except TimeoutError as error:
            crashed = self.page in self._crashed
            kind = FailureKind.BROWSER_CRASHED if crashed else FailureKind.PAGE_TIMEOUT
            raise BoundaryError(kind, f"{doing} took longer than {limit:g} s") from error
        except Exception as error:  # the boundary to the browser: Playwright's driver raises bare Exceptions too
            failure = named(error, doing, navigation=navigation)
            if self.page in self._crashed:
                # What is asked of a crashed page fails in many words; the cause is one.
                failure.kind = FailureKind.BROWSER_CRASHED
            raise failure from error
        finally:
            # Cancelled counts as well: nobody knows how far the browser got.
            self._sound = self._sound and done

    async def _call(self, function: str, argument: object) -> Any:
        channel = (await self._link(self.page)).channel
        expression = f"({function})({json.dumps(argument)})"
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = await channel.send("Runtime.evaluate", asked)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptError(details.get("exception", {}).get("description") or details.get("text", "it threw"))
        return answer["result"].get("value")

    async def _capture(self) -> bytes:
        channel = (await self._link(self.page)).channel
        taken = await channel.send("Page.captureScreenshot", {"format": "png"})
        return base64.b64decode(taken["data"])

    async def _link(self, page: Page) -> Link:
        link = self._links.get(page)
        if link is None:
            link = await open_link(self._context, page, self._direct, watch=self.options.watch_traffic)
            self._links[page] = link
        return link

    def _moved_on(self, error: Exception) -> bool:
        """Tell whether the current page closed while another one is left, which is now the current one."""
        if len(self._pages) < 2 or not says(error, (*PAGE_GONE, *LOST_CONTEXT)):
            return False
        link = self._links.get(self.page)
        gone = self.page.is_closed() or (link is not None and not link.is_open)
        if gone:
            self._closed(self.page)
        return gone

    def _expire(self) -> None:
        """End the context's life, with whatever an episode is doing with it."""
        self._sound = False
        self._closing = asyncio.create_task(close_quietly(self._context))

    def _opened(self, page: Page) -> None:
        if page in self._pages:
            return
        self._pages.append(page)
        self._watch(page)

    def _watch(self, page: Page) -> None:
        page.on("close", self._closed)
        page.on("crash", self._page_crashed)
        page.on("download", self._refuse_download)

    def _page_crashed(self, page: Page) -> None:
        self._crashed.add(page)

    def _closed(self, page: Page) -> None:
        self._links.pop(page, None)
        # The last page stays: asking it raises the browser's own error, which then gets its name.
        if len(self._pages) > 1 and page in self._pages:
            self._pages.remove(page)

    def _refuse_download(self, download: Download) -> None:
        self.downloads.append(download.suggested_filename[:200])

    async def _answer_dialog(self, dialog: Dialog) -> None:
        if len(self.dialogs) < _MAX_DIALOGS:
            self.dialogs.append(f"{dialog.type}: {dialog.message[:200]}")
        try:
            await dialog.accept()
        except Exception as error:  # noqa: BLE001  Playwright's boundary: the page may be gone, the next call says so
            self.dialogs.append(f"a dialog could not be answered: {error}")
