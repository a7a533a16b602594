"""Pages of one context: the current page, and events that a screenshot does not show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from webgym_cli.environments.browser.failures import (
    LOST_CONTEXT,
    PAGE_GONE,
    SESSION_GONE,
    attempt,
    close_quietly,
    has_sign,
)
from webgym_cli.environments.browser.page_connection import PageConnection

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, ConsoleMessage, Download, FileChooser, Page, WebError

# Maximum number of open pages; further ones are closed as they open.
_MOST_PAGES = 10
# Maximum number of messages on the consoles of a context that are counted: a page can write any number.
_MOST_MESSAGES = 1000
# Maximum number of remembered dialogs, and of downloads.
MOST_NOTICES = 20
_OPENER_SECONDS = 1.0
FILE_REQUEST = "The page asks for a file; it was given none"


class PageTracker:
    """Tracks the pages of a context. A new page becomes the current one; when it closes, the one before it does."""

    def __init__(self, context: BrowserContext, first: Page, *, counts_errors: bool = False) -> None:
        self.downloads: list[str] = []
        """Names of the files that pages offered for download; the files are not stored."""
        self.file_requests = 0
        """Number of file choosers that were opened and got no files."""
        self.clipboard: dict[str, str] = {}
        """What was copied last, by type. The browser's own clipboard is one for all contexts."""
        self.crashed: set[Page] = set()
        """Pages whose process died."""
        self.connections: dict[Page, PageConnection] = {}
        """Connections of the open pages, created on first use."""
        self.current = first
        """The page that is shown: the newest unless another was chosen; the last one stays, also when it has closed."""
        self.closing: set[asyncio.Task[None]] = set()
        """Tasks that close the pages above the limit, and those opened for a download."""
        self.tabs = [first]
        """Open pages, in the order in which they were opened."""
        self.console_errors = 0
        """Number of errors on the pages' consoles, and of uncaught ones of their scripts."""
        self._messages = 0
        self._before: dict[Page, Page] = {}
        """The page that was current when a page opened."""
        self._watch(first)
        context.on("page", self._on_open)
        if counts_errors:
            self._watch_console(context)

    def __len__(self) -> int:
        return len(self.tabs)

    @property
    def is_full(self) -> bool:
        """Whether a further page would be closed as it opens."""
        return len(self.tabs) >= _MOST_PAGES

    def _watch_console(self, context: BrowserContext) -> None:
        """Count the errors on the consoles of the context's pages."""

        def note(message: ConsoleMessage | WebError) -> None:
            self.console_errors += getattr(message, "type", "error") == "error"
            self._messages += 1
            if self._messages == _MOST_MESSAGES:
                context.remove_listener("console", note)
                context.remove_listener("weberror", note)

        context.on("console", note)
        context.on("weberror", note)

    def show(self, page: Page) -> None:
        """Make an open page the current one."""
        if page in self.tabs:
            self.current = page

    def moved_on(self, page: Page, error: Exception) -> bool:
        """Whether an error means that its page closed while another page, now current, is open."""
        if not has_sign(error, (*PAGE_GONE, *LOST_CONTEXT)):
            return False
        if page not in self.tabs:  # Playwright reported it first
            return True
        connection = self.connections.get(page)
        known = has_sign(error, SESSION_GONE) or page.is_closed() or connection is None or not connection.is_open
        is_closed = len(self.tabs) > 1 and known
        if is_closed:
            self._on_close(page)
        return is_closed

    def _on_open(self, page: Page) -> None:
        if page in self.tabs:
            return
        # A page without an address was opened for a download: it never gets a document, and its calls hang.
        if self.is_full or not page.url:
            self._close(page)
            return
        self._before[page] = self.current
        self.tabs.append(page)
        self.current = page
        self._watch(page)

    def _close(self, page: Page) -> None:
        closing = asyncio.create_task(close_quietly(page.close))
        self.closing.add(closing)
        closing.add_done_callback(self.closing.discard)

    def _watch(self, page: Page) -> None:
        page.on("close", self._on_close)
        page.on("crash", lambda crashed: self.crashed.add(crashed))  # Playwright takes no built-in method
        page.on("download", self._refuse_download)
        # Registered from the start: a listener added just before a click may come too late.
        page.on("filechooser", self._note_chooser)

    def _note_chooser(self, chooser: FileChooser) -> None:
        self.file_requests += 1

    def _on_close(self, page: Page) -> None:
        if connection := self.connections.pop(page, None):
            connection.traffic.stop()  # nobody waits for its navigation to end
        before = self._before.pop(page, None)
        # The last page stays current: its use raises the browser's own error, which `guard` converts.
        if len(self.tabs) > 1 and page in self.tabs:
            self.tabs.remove(page)
            if self.current is page:
                self.current = before if before and before in self.tabs else self.tabs[-1]

    async def _refuse_download(self, download: Download) -> None:
        if len(self.downloads) < MOST_NOTICES:
            self.downloads.append(download.suggested_filename[:200])
        page = download.page
        opener = await attempt(page.opener(), _OPENER_SECONDS) if page.url == "about:blank" else None
        if opener is not None and len(self.tabs) > 1:
            self._on_close(page)
            self._close(page)
