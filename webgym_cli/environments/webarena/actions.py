"""Carries out WebRL's actions on a session; those that it shares with us as on the open web."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from webgym_cli.environments.browser.actions import AddressCheck, locate_element, perform_action
from webgym_cli.environments.browser.html import READER_JS
from webgym_cli.environments.browser.observe import ACT_JS
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.browser.tabs import show_tab
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webrl import AnyAction, WebRLAction, WebRLActionName

# So much of the viewport's height goes by in one scroll, as in WebRL.
_SCROLLED = 2 / 3
_OWN_EXPERIENCE = (FailureKind.NAVIGATION_FAILED, FailureKind.PAGE_TIMEOUT)


async def perform_webrl(session: BrowserSession, action: AnyAction, check_address: AddressCheck) -> str | None:
    """Carry out one action. Returns None, or why it was refused. `answer` is not an action on the browser."""
    if isinstance(action, Action):
        if action.name is ActionName.SCROLL:
            return await _scroll(session, action)
        return await perform_action(session, action, check_address)
    if not isinstance(action, WebRLAction):
        raise ValueError(f"{action.name} is not an action of this environment")
    doers: dict[WebRLActionName, Callable[[], Awaitable[str | None]]] = {
        WebRLActionName.SEARCH: lambda: _search(session, action, check_address),
        WebRLActionName.SELECT: lambda: _select(session, action),
        WebRLActionName.PRESS_ENTER: lambda: _press_enter(session),
        WebRLActionName.GO_FORWARD: lambda: _go_forward(session),
        WebRLActionName.RIGHT_CLICK: lambda: _right_click(session, action),
        WebRLActionName.SWITCH_TAB: lambda: _switch_tab(session, action),
        WebRLActionName.QUOTE: _quote,
    }
    return await doers[action.name]()


async def _scroll(session: BrowserSession, action: Action) -> str | None:
    down = action.direction == "down"
    x, y = await session.evaluate(f"(down) => {ACT_JS}.scrollable(down)", down)
    distance = session.options.height * _SCROLLED
    await session.wheel(x, y, distance if down else -distance)
    return None


async def _search(session: BrowserSession, action: WebRLAction, check_address: AddressCheck) -> str | None:
    text = (action.text or "").rstrip("\r\n") + "\n"
    return await perform_action(
        session, Action(name=ActionName.TYPE, element_id=action.element_id, text=text), check_address
    )


async def _select(session: BrowserSession, action: WebRLAction) -> str | None:
    point = await locate_element(session, _element(action))
    if isinstance(point, str):
        return point
    chosen = await session.evaluate(f"([id, text]) => {READER_JS}.choose(id, text)", [action.element_id, action.text])
    error: str | None = chosen.get("error")
    return error


async def _press_enter(session: BrowserSession) -> str | None:
    async with session.guard("pressing Enter"):
        await session.keyboard.press("Enter")
    return None


async def _go_forward(session: BrowserSession) -> str | None:
    try:
        return None if await session.go_forward() else "there is no page to go forward to"
    except BoundaryError as error:
        if error.kind in _OWN_EXPERIENCE:
            return f"the page after can't be loaded: {error}"
        raise


async def _right_click(session: BrowserSession, action: WebRLAction) -> str | None:
    point = await locate_element(session, _element(action))
    if isinstance(point, str):
        return point
    await session.click(*point, right=True)
    return None


async def _switch_tab(session: BrowserSession, action: WebRLAction) -> str | None:
    if await show_tab(session, action.tab or 0):
        return None
    count = len(session.pages.tabs)
    known = f"they are numbered 0 to {count - 1}" if count > 1 else "there is only tab 0"
    return f"there is no tab {action.tab}; {known}"


async def _quote() -> str | None:
    return None  # it is kept where it was said: in the history


def _element(action: WebRLAction) -> int:
    if action.element_id is None:
        raise ValueError(f"{action.name} points at nothing")
    return action.element_id
