"""One isolated browser context with the page that the policy sees: the boundary where Playwright's errors get names."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Dialog, Mouse, Page

_CRASH_SIGNS = ("crashed", "has been closed", "connection closed", "target closed", "browser closed", "disconnected")
_LOST_CONTEXT = ("execution context was destroyed", "cannot find context with specified id", "frame was detached")
"""How Playwright says that the page was replaced while it was asked something."""
_CLOSE_TIMEOUT = 5.0
_MAX_DIALOGS = 20


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a context is made."""

    width: int
    """Width of the viewport in CSS pixels."""
    height: int
    """Height of the viewport in CSS pixels."""
    device_scale_factor: float = 1.0
    action_timeout: float = 15.0
    """Deadline of everything but a page load, in seconds."""
    navigation_timeout: float = 30.0
    """Deadline of a page load, in seconds."""
    init_scripts: tuple[str, ...] = ()
    """Scripts that run in every document before its own."""
    context_arguments: dict[str, Any] = field(default_factory=dict)
    """More arguments for Playwright's `new_context`."""


class BrowserSession:
    """One context and its current page. A popup becomes the current page; when it closes, its opener is it again.

    Every method ends within its deadline or raises `BoundaryError`; after `BROWSER_CRASHED` only `close` is of use.
    """

    def __init__(self, context: BrowserContext, page: Page, options: SessionOptions) -> None:
        self.options = options
        self.dialogs: list[str] = []
        """What the page's dialogs said, oldest first; each was accepted at once (prompts with their default)."""
        self.uses = 0
        """How many episodes it has served; counted by its owner."""
        self._sound = True
        self._crashed: set[Page] = set()
        self._context = context
        self._pages = [page]
        self._screens: dict[Page, CDPSession] = {}
        context.on("page", self._opened)
        context.on("dialog", self._answer_dialog)

    @classmethod
    async def open(cls, context: BrowserContext, options: SessionOptions) -> BrowserSession:
        """Make the context's first page."""
        context.set_default_timeout(options.action_timeout * 1000)
        context.set_default_navigation_timeout(options.navigation_timeout * 1000)
        for script in options.init_scripts:
            await context.add_init_script(script)
        page = await context.new_page()
        session = cls(context, page, options)
        session._watch(page)
        return session

    @property
    def page(self) -> Page:
        """The current page."""
        return self._pages[-1]

    @property
    def pristine(self) -> bool:
        """Whether nothing happened that another episode could notice: no failure, no popup, no dialog."""
        return self._sound and len(self._pages) == 1 and not self.dialogs and not self.page.is_closed()

    @property
    def mouse(self) -> Mouse:
        """The current page's mouse; use it within `guard`."""
        return self.page.mouse

    @property
    def url(self) -> str:
        """The current page's address."""
        return self.page.url

    async def title(self) -> str:
        """Return the current page's title."""
        return str(await self.evaluate("() => document.title"))

    async def goto(self, url: str) -> None:
        """Load an address and wait for its `load` event. Raises `NAVIGATION_FAILED` or `PAGE_TIMEOUT`."""
        async with self.guard("loading the page", self.options.navigation_timeout, navigation=True):
            await self.page.goto(url, wait_until="load")

    async def go_back(self) -> bool:
        """Go back in history; a popup without history closes. Returns False when there is nowhere to go."""
        async with self.guard("going back", self.options.navigation_timeout, navigation=True):
            before = self.page.url
            if await self.page.evaluate("() => history.length") > 1:
                await self.page.go_back(wait_until="load")
                if self.page.url != before:
                    return True
            if len(self._pages) == 1:
                return False
            await self.page.close()
            return True

    async def evaluate(self, expression: str, argument: object = None) -> Any:
        """Run JavaScript in the page. When the page is replaced meanwhile, it is asked once more."""
        async with self.guard("running a script in the page"):
            try:
                return await self.page.evaluate(expression, argument)
            except _playwright_error() as error:
                if not any(sign in str(error).lower() for sign in _LOST_CONTEXT):
                    raise
            await self.page.wait_for_load_state("domcontentloaded")
            return await self.page.evaluate(expression, argument)

    async def screenshot(self) -> bytes:
        """Return the viewport as PNG bytes, without the text caret's blinking if the page has our style."""
        async with self.guard("taking a screenshot"):
            page = self.page
            screen = self._screens.get(page)
            if screen is None:
                screen = self._screens[page] = await self._context.new_cdp_session(page)
            taken = await screen.send("Page.captureScreenshot", {"format": "png"})
            return base64.b64decode(taken["data"])

    async def close(self) -> None:
        """Close the context. Never raises and never hangs: what can't be closed ends with its browser."""
        await close_quietly(self._context)

    @asynccontextmanager
    async def guard(self, doing: str, seconds: float | None = None, *, navigation: bool = False) -> AsyncIterator[None]:
        """The one place where a deadline is set and Playwright's exceptions become `BoundaryError`."""
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
        except Exception as error:  # the boundary to Playwright, whose driver raises bare Exceptions too
            failure = named(error, doing, navigation=navigation)
            if self.page in self._crashed:
                # What is asked of a crashed page fails in many words; the cause is one.
                failure.kind = FailureKind.BROWSER_CRASHED
            raise failure from error
        finally:
            # Cancelled counts as well: nobody knows how far the browser got.
            self._sound = self._sound and done

    def _opened(self, page: Page) -> None:
        if page in self._pages:
            return
        self._pages.append(page)
        self._watch(page)

    def _watch(self, page: Page) -> None:
        page.on("close", self._closed)
        page.on("crash", self._page_crashed)

    def _page_crashed(self, page: Page) -> None:
        self._crashed.add(page)

    def _closed(self, page: Page) -> None:
        self._screens.pop(page, None)
        # The last page stays: asking it raises Playwright's own error, which then gets its name.
        if len(self._pages) > 1 and page in self._pages:
            self._pages.remove(page)

    async def _answer_dialog(self, dialog: Dialog) -> None:
        if len(self.dialogs) < _MAX_DIALOGS:
            self.dialogs.append(f"{dialog.type}: {dialog.message[:200]}")
        try:
            await dialog.accept()
        except Exception as error:  # noqa: BLE001  Playwright's boundary: the page may be gone, the next call says so
            self.dialogs.append(f"a dialog could not be answered: {error}")


async def close_quietly(context: BrowserContext) -> None:
    """Close a context within a deadline, whatever state its browser is in."""
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            await context.close()
    except Exception:  # noqa: BLE001  Playwright's boundary: what is gone already needs no closing
        return


def named(error: Exception, doing: str, *, navigation: bool = False) -> BoundaryError:
    """Return Playwright's exception as one of ours."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as PlaywrightTimeout

    text = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    message = f"{doing} failed: {text}"
    lowered = text.lower()
    if any(sign in lowered for sign in _CRASH_SIGNS):
        return BoundaryError(FailureKind.BROWSER_CRASHED, message)
    if isinstance(error, PlaywrightTimeout):
        return BoundaryError(FailureKind.PAGE_TIMEOUT, message)
    if navigation and isinstance(error, Error):
        return BoundaryError(FailureKind.NAVIGATION_FAILED, message)
    return BoundaryError(FailureKind.ENVIRONMENT_ERROR, message)


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error
