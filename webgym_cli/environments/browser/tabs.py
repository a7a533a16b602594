"""Tab actions: list, open, show and close the tabs of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.trajectory import Tab

if TYPE_CHECKING:
    from playwright.async_api import Page


def list_tabs(session: BrowserSession, titles: Mapping[Page, str]) -> tuple[Tab, ...]:
    """Return the open tabs with their known titles; empty unless there are several."""
    tabs = tuple(
        Tab(url=page.url, title=titles.get(page, ""), current=page is session.page) for page in session.pages.tabs
    )
    return tabs if len(tabs) > 1 else ()


async def new_tab(session: BrowserSession) -> None:
    """Open an empty tab, which becomes the current page."""
    async with session.guard("opening a tab"):
        session.pages.show(await session.page.context.new_page())
    await session.traffic()  # connected before its first navigation, so that its traffic is tracked


async def show_tab(session: BrowserSession, number: int) -> str | None:
    """Show a tab by its index in `session.pages.tabs`. Returns None, or the reason why it does not exist."""
    if refusal := _refuse_tab(session, number):
        return refusal
    tab = session.pages.tabs[number]
    session.pages.show(tab)
    async with session.guard("showing a tab"):
        await tab.bring_to_front()
    return None


async def close_tab(session: BrowserSession, number: int | None) -> str | None:
    """Close a tab by its number, or the current one. Returns None, or why it stays."""
    if refusal := _refuse_tab(session, number or 0):
        return refusal
    if len(session.pages) == 1:
        return "the only tab can't be closed"
    async with session.guard("closing a tab"):
        await (session.page if number is None else session.pages.tabs[number]).close()
    return None


def _refuse_tab(session: BrowserSession, number: int) -> str | None:
    count = len(session.pages)
    if number < count:
        return None
    known = f"they are numbered 0 to {count - 1}" if count > 1 else "there is only tab 0"
    return f"there is no tab {number}; {known}"
