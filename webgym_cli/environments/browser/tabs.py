"""Several tabs of one session."""

from __future__ import annotations

from webgym_cli.environments.browser.session import BrowserSession


async def new_tab(session: BrowserSession) -> None:
    """Open an empty tab, which becomes the current page."""
    async with session.guard("opening a tab"):
        session.pages.show(await session.page.context.new_page())
    await session.traffic()  # followed from before its first page


async def show_tab(session: BrowserSession, number: int) -> bool:
    """Make a tab the current page, by its number in `session.pages.tabs`. Returns False when there is no such tab."""
    tabs = session.pages.tabs
    if number >= len(tabs):
        return False
    async with session.guard("showing a tab"):
        await tabs[number].bring_to_front()
        session.pages.show(tabs[number])
    return True
