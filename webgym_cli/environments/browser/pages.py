"""Pages of one context: the current page, its dialogs, and other events that a screenshot does not show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar, cast

from webgym_cli.environments.browser.failures import (
    LOST_CONTEXT,
    PAGE_GONE,
    SESSION_GONE,
    attempt,
    close_quietly,
    has_sign,
)
from webgym_cli.environments.browser.keys import find_key
from webgym_cli.environments.browser.page_connection import PageConnection
from webgym_cli.jobs.workers import race
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.webrl import AnyAction
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.text import truncate

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, ConsoleMessage, Dialog, Download, FileChooser, Page, WebError

# Maximum number of open pages; further ones are closed as they open.
_MOST_PAGES = 10
# Maximum number of messages on the consoles of a context that are counted: a page can write any number.
_MOST_MESSAGES = 1000
# Maximum number of remembered dialogs, and of downloads.
_MOST_NOTICES = 20
_OPENER_SECONDS = 1.0
FILE_REQUEST = "The page asks for a file; it was given none"
T = TypeVar("T")
# Maximum lengths in characters: message of an answered dialog, of an open one, and text of its field.
_LONGEST, _LONGEST_SHOWN, _LONGEST_HELD = 200, 150, 40
# Keys that answer a dialog.
_ANSWERS = {"Enter": ActionName.ACCEPT_DIALOG, "Escape": ActionName.DISMISS_DIALOG}
_BLOCKED = "a dialog is open: nothing else can be done until it is accepted or dismissed"
_LEAVES = "the page asks whether to leave it, as changes may be lost"


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
        if len(self.downloads) < _MOST_NOTICES:
            self.downloads.append(download.suggested_filename[:200])
        page = download.page
        opener = await attempt(page.opener(), _OPENER_SECONDS) if page.url == "about:blank" else None
        if opener is not None and len(self.tabs) > 1:
            self._on_close(page)
            self._close(page)


class DialogTracker:
    """Tracks the dialogs of a context. An open dialog blocks scripts and screenshots of its page."""

    def __init__(self, context: BrowserContext, pages: PageTracker, *, keep: bool) -> None:
        """`keep`: leave dialogs open until `answer`."""
        self.answered: list[str] = []
        """Messages of the dialogs that were accepted at once (prompts with their default), oldest first."""
        self.raised = asyncio.Event()
        """Set while a dialog is open, and for the rest of a step in which a page asked whether to leave it."""
        self.typed: str | None = None
        """Text typed into the open dialog; None before any typing."""
        self.keep = keep
        self._pages = pages
        self._open: list[Dialog] = []
        self._may_leave = True
        context.on("dialog", self._keep if keep else self._answer)

    @property
    def open(self) -> Dialog | None:
        """The dialog to answer first; None if no dialog is open."""
        return self._open[0] if self._open else None

    @property
    def stayed(self) -> bool:
        """Whether a page asked in this step, for the first time, whether to leave it, and was kept."""
        return self.raised.is_set() and not self.keep

    def begin_step(self) -> None:
        """Start a step: a page that asks whether to leave it is kept the first time, with its unsaved changes."""
        self._may_leave = self.raised.is_set()
        if not self._open:
            self.raised.clear()

    def describe(self) -> str:
        """Return a description of the open dialog: kind, message, field text."""
        if (dialog := self.open) is None:
            return ""
        content = _LEAVES if dialog.type == "beforeunload" else f"it says {_quote(dialog.message, _LONGEST_SHOWN)}"
        value = known_or(self.typed, dialog.default_value)
        holds = when(dialog.type == "prompt", f" and its field holds {_quote(value, _LONGEST_HELD)}")
        return f"A dialog ({dialog.type}) is open, nothing else can be done until it is answered: {content}{holds}"

    async def answer(self, action: AnyAction) -> str | None:
        """Answer the open dialog with an action. Returns None, or the reason why it stays open.

        A prompt is accepted with the action's text, else the typed text, else its default. Dismissing a page's question
        whether to leave it keeps the page.
        """
        dialog = self.open
        if dialog is None or not isinstance(action, Action):
            return _BLOCKED
        key = find_key(action.keys[0]) if action.keys and len(action.keys) == 1 else None
        name, text, typed = _ANSWERS.get(key or "", action.name), action.text, self.typed
        if text is not None and dialog.type != "prompt":
            return f"the dialog ({dialog.type}) has no field for a text"
        if name is ActionName.TYPE and action.here:
            # the first typing replaces the default, which is selected, as a browser has it
            self.typed = typed = (typed or "") + (text or "").removesuffix("\n")
            if not action.submit and not (text or "").endswith("\n"):
                return None
            name, text = ActionName.ACCEPT_DIALOG, typed
        if name not in _ANSWERS.values():
            return _BLOCKED
        self._forget(dialog)
        if name is ActionName.DISMISS_DIALOG:
            await self._refuse(dialog)
        else:
            await dialog.accept(known_or(text, known_or(typed, dialog.default_value)))
        return None

    async def until_raised(self, doing: Coroutine[None, None, T]) -> T | None:
        """Return the coroutine's result; None if a dialog opens first, since the dialog may block the coroutine."""
        async with race(doing, self.raised.wait()) as (done, _):
            return None if self.raised.is_set() else cast(T, done.result())

    def _keep(self, dialog: Dialog) -> None:
        self._open.append(dialog)
        if page := dialog.page:
            # A dialog may block several pages: show the one on which it can be answered.
            self._pages.show(page)
            page.once("close", lambda _: self._forget(dialog))
            page.once("crash", lambda _: self._forget(dialog))
        self.raised.set()

    def _forget(self, dialog: Dialog) -> None:
        """Remove a dialog that was answered or closed with its page."""
        if dialog in self._open:
            self._open.remove(dialog)
            self.typed = None
            if not self._open:
                self.raised.clear()

    async def _answer(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload" and not self._may_leave:
            if await self._refuse(dialog):
                self.raised.set()
            return
        if len(self.answered) < _MOST_NOTICES:
            self.answered.append(f"{dialog.type}: {dialog.message[:_LONGEST]}")
        try:
            await dialog.accept(dialog.default_value)
        except Exception as error:  # noqa: BLE001  Playwright's boundary: the page may be gone, the next call says so
            if len(self.answered) < _MOST_NOTICES:
                self.answered.append(f"a dialog could not be answered: {error}")

    async def _refuse(self, dialog: Dialog) -> bool:
        """Dismiss a dialog. Returns False if its page is gone."""
        try:
            await dialog.dismiss()
        except Exception:  # noqa: BLE001  Playwright's boundary: the page is gone, so it was left
            return False
        connection = self._pages.connections.get(dialog.page) if dialog.page else None
        if dialog.type == "beforeunload" and connection is not None:
            connection.traffic.stop()
        return True


def _quote(text: str, limit: int) -> str:
    return json.dumps(truncate(text, limit), ensure_ascii=False)
