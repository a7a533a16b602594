"""The pages of one context: which one is current, and what they did that no picture shows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from webgym_cli.environments.browser.failures import LOST_CONTEXT, PAGE_GONE, SESSION_GONE, close_quietly, has_sign
from webgym_cli.environments.browser.page_connection import PageConnection

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Download, FileChooser, Page

# So many are open at once; a further one is closed as it opens.
_MOST_PAGES = 10
# So many dialogs, and as many downloads, are remembered.
MOST_NOTICES = 20


class PageTracker:
    """Follows a context. A new page becomes the current one; when that closes, the newest that is left is it."""

    def __init__(self, context: BrowserContext, first: Page) -> None:
        self.downloads: list[str] = []
        """The names of files that pages offered; none is kept."""
        self.file_requests = 0
        """How often a page asked for files and got none."""
        self.crashed: set[Page] = set()
        """Pages whose process died."""
        self.connections: dict[Page, PageConnection] = {}
        """How the open pages are talked to, as far as they were."""
        self.current = first
        """The page that is shown: the newest unless another was chosen; the last one stays, also when it has closed."""
        self.closing: set[asyncio.Task[None]] = set()
        """Of pages that were too many."""
        self.tabs = [first]
        """All that are open, in the order in which they were opened."""
        self._watch(first)
        context.on("page", self._on_open)

    def __len__(self) -> int:
        return len(self.tabs)

    @property
    def is_full(self) -> bool:
        """Whether a further page would be closed as it opens."""
        return len(self.tabs) >= _MOST_PAGES

    def show(self, page: Page) -> None:
        """Make an open page the current one."""
        if page in self.tabs:
            self.current = page

    def moved_on(self, page: Page, error: Exception) -> bool:
        """Tell by an error whether its page closed while another one is left, which is now the current one."""
        if not has_sign(error, (*PAGE_GONE, *LOST_CONTEXT)):
            return False
        if page not in self.tabs:  # Playwright told of it first
            return True
        connection = self.connections.get(page)
        known = has_sign(error, SESSION_GONE) or page.is_closed() or (connection is not None and not connection.is_open)
        is_closed = len(self.tabs) > 1 and known
        if is_closed:
            self._on_close(page)
        return is_closed

    def _on_open(self, page: Page) -> None:
        if page in self.tabs:
            return
        if self.is_full:
            closing = asyncio.create_task(close_quietly(page.close))
            self.closing.add(closing)
            closing.add_done_callback(self.closing.discard)
            return
        self.tabs.append(page)
        self.current = page
        self._watch(page)

    def _watch(self, page: Page) -> None:
        page.on("close", self._on_close)
        page.on("crash", lambda crashed: self.crashed.add(crashed))  # Playwright takes no built-in method
        page.on("download", self._refuse_download)
        # Listening from the start: to ask the browser for the request just before a click may come too late.
        page.on("filechooser", self._note_chooser)

    def _note_chooser(self, chooser: FileChooser) -> None:
        self.file_requests += 1

    def _on_close(self, page: Page) -> None:
        self.connections.pop(page, None)
        # The last page stays: asking it raises the browser's own error, which then gets its name.
        if len(self.tabs) > 1 and page in self.tabs:
            self.tabs.remove(page)
            if self.current is page:
                self.current = self.tabs[-1]

    def _refuse_download(self, download: Download) -> None:
        if len(self.downloads) < MOST_NOTICES:
            self.downloads.append(download.suggested_filename[:200])
