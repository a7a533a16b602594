"""One isolated browser context and its current page; converts browser errors to `BoundaryError`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from webgym_cli.environments.browser.cdp import CDPConnection
from webgym_cli.environments.browser.failures import LOST_CONTEXT, close_quietly, has_sign, to_boundary_error
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.page_activity import PageActivity
from webgym_cli.environments.browser.page_connection import FrameDocument, PageConnection, connect_page
from webgym_cli.environments.browser.pages import DialogTracker, PageTracker
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

_POPUP_TIMEOUT = 3.0
_REPLACED = 10  # maximum number of successive documents in which a call is retried


class BrowserSession:
    """One context and its current page. A new page becomes the current one; when it closes, the one before it does.

    Every method ends within its deadline or raises `BoundaryError`; after `BROWSER_CRASHED` only `close` may be called.
    """

    def __init__(
        self,
        context: BrowserContext,
        page: Page,
        options: SessionOptions,
        direct: CDPConnection | None,
        closed: Callable[[], None],
    ) -> None:
        self.options = options
        self.pages = PageTracker(context, page, counts_errors=options.watch_traffic)
        """Open pages and their events."""
        self.dialogs = DialogTracker(context, self.pages, keep=options.keep_dialogs)
        self.uses = 0
        """Number of episodes served; incremented by its owner."""
        self.pointer = options.width / 2, options.height / 2
        """Mouse position in CSS pixels."""
        self.framed: dict[int, tuple[FrameDocument, int]] = {}
        """Where listed elements are in frames that the page can't read, by id: the frame, and the number there."""
        self.silent: set[str] = set()
        self.asks_credentials = False
        """Whether the last loaded address requested HTTP authentication."""
        self._sound, self._expired = True, False
        self._silent = 0
        """Number of pages of which the driver never learned: they were opened for what is no document (status 204)."""
        self._context = context
        self._context_id = ""
        """Chrome's id of the context."""
        self._direct = direct
        self._closed = closed
        self._expiry: asyncio.TimerHandle
        """Begins once the session is open."""
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        context: BrowserContext,
        options: SessionOptions,
        direct: CDPConnection | None,
        closed: Callable[[], None],
    ) -> BrowserSession:
        """Make the context's first page. `direct`: the short way to the browser; `closed` is called at its end."""
        context.set_default_timeout(options.action_timeout * 1000)
        context.set_default_navigation_timeout(options.navigation_timeout * 1000)
        for script in options.init_scripts:
            await context.add_init_script(script)
        page = await context.new_page()
        session = cls(context, page, options, direct, closed)
        session._context_id = (await session.connection()).context
        session._expiry = asyncio.get_running_loop().call_later(options.life_seconds, session._expire)
        return session

    @property
    def page(self) -> Page:
        """The current page."""
        return self.pages.current

    @property
    def is_pristine(self) -> bool:
        """Whether the context can be reused: no failure, popup or dialog that could affect another episode."""
        # Contexts that begin together end together: each had an episode then, and as many failures ended the rollout.
        left = self._expiry.when() - asyncio.get_running_loop().time()
        alone = len(self.pages) == 1 and not self.page.is_closed()
        quiet = not self.dialogs.answered and self.dialogs.open is None
        is_young = left >= self.options.life_seconds / 2
        return self._sound and alone and quiet and is_young and self._closing is None

    @property
    def url(self) -> str:
        """The current page's address."""
        return self.page.url

    async def goto(self, url: str) -> int:
        """Load an address; return its HTTP status, 0 without one. Raises `NAVIGATION_FAILED` or `PAGE_TIMEOUT`."""
        async with self._load("loading the page"):
            response = await self.page.goto(url, wait_until=self.options.wait_until)
        self.asks_credentials = (
            response is not None and response.status == 401 and "www-authenticate" in response.headers
        )
        return response.status if response else 0

    async def stop_loading(self) -> None:
        """Cancel the pending navigation, which would keep scripts from running in the page."""
        async with self.guard("stopping the page", may_close=True):
            await (await self.connection()).stop_loading()

    async def go_back(self) -> bool:
        """Go back in history; a popup without history closes. Returns False when there is nowhere to go."""
        async with self._load("going back"):
            at, addresses = await self._history()
            if at > (addresses[0] == "about:blank"):  # the initial about:blank is no history entry to return to
                await self.page.go_back(wait_until=self.options.wait_until)
            elif len(self.pages) == 1:
                return False
            else:
                await self.page.close()
            return True

    async def go_forward(self) -> bool:
        """Go forward in history. Returns False when there is nowhere to go."""
        async with self._load("going forward"):
            at, addresses = await self._history()
            if at + 1 < len(addresses):
                await self.page.go_forward(wait_until=self.options.wait_until)
            return at + 1 < len(addresses)

    async def reload(self) -> None:
        """Load the current page again."""
        async with self._load("loading the page again"):
            await self.page.reload(wait_until=self.options.wait_until)

    async def add_cookies(self, cookies: Sequence[Any]) -> None:
        """Set cookies in Playwright's form."""
        async with self.guard("setting cookies"):
            await self._context.add_cookies(cookies)

    async def evaluate(self, function: str, argument: object = None) -> Any:
        """Call a JavaScript function in the page. If the page is replaced meanwhile, retry in the next document."""
        for _ in range(_REPLACED):
            answered, value = await self.evaluate_once(function, argument)
            if answered:
                return value
            async with self.guard("waiting for the next page", may_close=True):
                await self.page.wait_for_load_state("domcontentloaded")
        raise BoundaryError(FailureKind.PAGE_TIMEOUT, "the page is replaced again and again")

    async def evaluate_once(self, function: str, argument: object = None, seconds: float = 0.0) -> tuple[bool, Any]:
        """Call a JavaScript function that takes up to `seconds`. Returns whether the page survived, and the result."""
        try:
            return await self._call_function(function, argument, seconds)
        except BoundaryError as error:
            if error.kind is not FailureKind.PAGE_TIMEOUT or not await self._may_be_navigating():
                raise
        await self.stop_loading()
        return await self._call_function(function, argument, seconds)

    async def screenshot(self) -> bytes:
        """Return the viewport as PNG bytes, without the text caret's blinking if the page has our style."""
        async with self.guard("taking a screenshot"):
            while True:
                page = self.page
                try:
                    return await (await self.connection()).capture_screenshot()
                except Exception as error:
                    if not self.pages.moved_on(page, error):
                        raise

    async def move(self, x: float, y: float) -> None:
        """Move the mouse to a point of the viewport."""
        async with self.guard("moving the mouse", may_close=True):
            await self.send_mouse(x, y)

    async def send_mouse(self, x: float, y: float, *events: dict[str, Any]) -> None:
        """Move the mouse to a point and send these events there, all at once: the browser keeps their order."""
        self.pointer = x, y
        channel = (await self.connection()).channel
        sent = ({**event, "x": x, "y": y} for event in ({"type": "mouseMoved"}, *events))
        await asyncio.gather(*(channel.send("Input.dispatchMouseEvent", event) for event in sent))

    async def traffic(self) -> PageActivity:
        """Return the current page's network activity; always idle unless `watch_traffic` is set."""
        async with self.guard("watching the page"):
            return (await self.connection()).traffic

    async def connection(self) -> PageConnection:
        """Return the connection of the current page; use it within `guard`."""
        watch, script = self.options.watch_traffic, self.options.isolated_script
        while (page := self.page) not in self.pages.connections:
            try:
                connection = await connect_page(self._context, page, self._direct, script, watch=watch)
                self.pages.connections[page] = connection
            except Exception as error:
                if not self.pages.moved_on(page, error):  # a popup that closed at once
                    raise
        return self.pages.connections[page]

    async def wait_for_popups(self) -> None:
        """Wait until a page that an action opened is current. The driver learns of it later than our connection."""
        if (direct := self._direct) is None:
            return
        async with self.guard("waiting for a new page"):
            deadline, pages = asyncio.get_running_loop().time() + _POPUP_TIMEOUT, self.pages
            # Playwright has no event for "all pages that Chrome has are known".
            while (unknown := direct.open_pages(self._context_id) - len(pages) - len(pages.closing)) > self._silent:
                if asyncio.get_running_loop().time() > deadline:
                    break
                await asyncio.sleep(0.01)
            self._silent = max(0, unknown)

    async def close(self) -> None:
        """Close the context. Never raises or hangs; a context that can't be closed ends with its browser."""
        self._expiry.cancel()
        self._closing = self._closing or asyncio.create_task(self._end())
        await self._closing

    @asynccontextmanager
    async def guard(
        self, doing: str, seconds: float | None = None, *, navigation: bool = False, may_close: bool = False
    ) -> AsyncIterator[None]:
        """Set a deadline; the browser's exceptions become `BoundaryError`. `may_close`: the page may close within."""
        limit, page, done = seconds or self.options.action_timeout, self.page, False
        try:
            # Slightly longer than Playwright's own deadline, whose error message is more specific.
            async with asyncio.timeout(limit + 0.5):
                yield
            done = True
        except BoundaryError:
            raise
        except TimeoutError as error:
            crashed = self.page in self.pages.crashed
            kind = FailureKind.BROWSER_CRASHED if crashed else FailureKind.PAGE_TIMEOUT
            raise BoundaryError(kind, f"{doing} {str(error) or f'took longer than {limit:g} s'}") from error
        except Exception as error:  # the boundary to the browser: Playwright's driver raises bare Exceptions too
            if (moved_on := self.pages.moved_on(page, error)) and may_close:
                done = True
                return
            failure = to_boundary_error(error, doing, navigation=navigation)
            if moved_on:
                failure.kind = FailureKind.PAGE_ERROR
            if self.page in self.pages.crashed:
                # Calls on a crashed page fail with various messages; report the one cause.
                failure.kind = FailureKind.BROWSER_CRASHED
            if self._expired:
                failure = BoundaryError(FailureKind.EPISODE_TIMEOUT, f"{doing}: the browser context reached its cap")
            raise failure from error
        finally:
            # A cancelled call counts as a failure too: the browser's state is unknown.
            self._sound = self._sound and done

    @asynccontextmanager
    async def _load(self, doing: str) -> AsyncIterator[None]:
        try:
            async with self.guard(doing, self.options.navigation_timeout, navigation=True):
                yield
        except BoundaryError as error:
            if error.kind is FailureKind.PAGE_TIMEOUT:
                await self.stop_loading()
            raise

    async def _call_function(self, function: str, argument: object, seconds: float) -> tuple[bool, Any]:
        async with self.guard("running a script in the page", self.options.action_timeout + seconds):
            page = self.page
            try:
                return True, await (await self.connection()).worlds.call(function, argument)
            except Exception as error:
                if not has_sign(error, LOST_CONTEXT) and not self.pages.moved_on(page, error):
                    raise
            return False, None

    async def _may_be_navigating(self) -> bool:
        if not self.options.watch_traffic:
            return False
        # A new page may have begun its first navigation before its traffic was followed.
        return (await self.traffic()).navigating or self.url in ("", ":", "about:blank")

    async def _history(self) -> tuple[int, list[str]]:
        """Return the current page's history index and the addresses of its history."""
        channel = (await self.connection()).channel
        history = await channel.send("Page.getNavigationHistory")
        return int(history["currentIndex"]), [str(entry["url"]) for entry in history["entries"]]

    def _expire(self) -> None:
        """Close the context at the end of its lifetime, even if an episode is using it."""
        self._sound, self._expired = False, True
        self._closing = asyncio.create_task(self._end())

    async def _end(self) -> None:
        await close_quietly(self._context.close)
        self._closed()
