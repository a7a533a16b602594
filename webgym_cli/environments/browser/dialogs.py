"""JavaScript dialogs of one context: accepted at once, or left open until an action answers them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar, cast

from webgym_cli.environments.browser.keys import find_key
from webgym_cli.environments.browser.pages import MOST_NOTICES, PageTracker
from webgym_cli.jobs.workers import race
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.webrl import AnyAction
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.text import truncate

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog

T = TypeVar("T")
# Maximum lengths in characters: message of an answered dialog, of an open one, and text of its field.
_LONGEST, _LONGEST_SHOWN, _LONGEST_HELD = 200, 150, 40
# Keys that answer a dialog.
_ANSWERS = {"Enter": ActionName.ACCEPT_DIALOG, "Escape": ActionName.DISMISS_DIALOG}
_BLOCKED = "a dialog is open: nothing else can be done until it is accepted or dismissed"
_LEAVES = "the page asks whether to leave it, as changes may be lost"


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
        if len(self.answered) < MOST_NOTICES:
            self.answered.append(f"{dialog.type}: {dialog.message[:_LONGEST]}")
        try:
            await dialog.accept(dialog.default_value)
        except Exception as error:  # noqa: BLE001  Playwright's boundary: the page may be gone, the next call says so
            if len(self.answered) < MOST_NOTICES:
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
