"""Carries out the agent's actions on a session, in both interaction modes, with real input events.

A well-formed action that can't be carried out is answered with a text for the policy; only infrastructure raises.
`type` clicks, replaces what the field holds, and presses Enter only when the text ends with a line feed. On a native
list it chooses the option of that label, because the list's own popup is drawn outside of the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from webgym_cli.environments.browser.observe import ACT_JS, OBSERVE_JS
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import NORMALISED, Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webrl import AnyAction

# Says why an address may not be visited; None when it may.
AddressCheck = Callable[[str], str | None]

_WRONG_ELEMENT = {
    "gone": "element {id} is no longer on the page",
    "covered": "element {id} is covered or out of reach",
}
# The policy chose where to go: that it can't be loaded is its own experience, not our failure.
_POLICY_FAULTS = (FailureKind.NAVIGATION_FAILED, FailureKind.PAGE_TIMEOUT)
# Longer texts are inserted at once instead of being typed key by key.
_MAX_TYPED_KEYS = 60
# Pixels of the old page that stay in sight after scrolling.
_SCROLL_OVERLAP = 50


async def perform_action(session: BrowserSession, action: AnyAction, check_address: AddressCheck) -> str | None:
    """Carry out one action. Returns None, or why it was refused. `answer` is not an action on the browser."""
    if not isinstance(action, Action):
        raise ValueError(f"{action.name} is not an action of this environment")
    doers: dict[ActionName, Callable[[], Awaitable[str | None]]] = {
        ActionName.CLICK: lambda: _click(session, action),
        ActionName.HOVER: lambda: _hover(session, action),
        ActionName.TYPE: lambda: _type(session, action),
        ActionName.SCROLL: lambda: _scroll(session, action),
        ActionName.WAIT: lambda: _wait(action),
        ActionName.GO_BACK: lambda: _go_back(session),
        ActionName.NAVIGATE: lambda: _navigate(session, action, check_address),
    }
    doer = doers.get(action.name)
    if doer is None:
        raise ValueError(f"{action.name} is not an action on the browser")
    return await doer()


def normalise_point(point: tuple[float, float], size: tuple[int, int]) -> tuple[float, float]:
    """Return a point in CSS pixels as whole normalised coordinates."""
    x, y = (min(max(round(axis / side * NORMALISED), 0), NORMALISED) for axis, side in zip(point, size, strict=True))
    return float(x), float(y)


async def locate_element(session: BrowserSession, element_id: int) -> tuple[float, float] | str:
    """Return where a listed element can be clicked, in CSS pixels, or why it can't be."""
    found = await session.evaluate(f"(id) => {OBSERVE_JS}.locate(id)", element_id)
    if "point" in found:
        return found["point"][0], found["point"][1]
    if found["error"] == "unknown":
        known = f"they are numbered 0 to {found['count'] - 1}" if found["count"] else "none are marked"
        return f"there is no element {element_id}; {known}"
    return _WRONG_ELEMENT[found["error"]].format(id=element_id)


async def _target_point(session: BrowserSession, action: Action) -> tuple[float, float] | str:
    """Return where the action points to in CSS pixels, or why it points nowhere."""
    if action.element_id is None:
        if action.coordinate is None:
            raise ValueError(f"{action.name} points at nothing")
        width, height = session.options.width, session.options.height
        # The last normalised value is the last pixel, not the first one outside.
        x, y = action.coordinate[0] / NORMALISED * width, action.coordinate[1] / NORMALISED * height
        return min(x, width - 1), min(y, height - 1)
    return await locate_element(session, action.element_id)


async def _click(session: BrowserSession, action: Action) -> str | None:
    point = await _target_point(session, action)
    if isinstance(point, str):
        return point
    await session.click(*point)
    return None


async def _hover(session: BrowserSession, action: Action) -> str | None:
    point = await _target_point(session, action)
    if isinstance(point, str):
        return point
    await session.move(*point)
    return None


async def _type(session: BrowserSession, action: Action) -> str | None:
    point = await _target_point(session, action)
    if isinstance(point, str):
        return point
    text = action.text or ""
    enter = text.endswith("\n")
    text = text.removesuffix("\n").removesuffix("\r")
    await session.click(*point)
    ready = await session.evaluate(f"([point, text]) => {ACT_JS}.prepare(point, text)", [list(point), text])
    if "error" in ready:
        return str(ready["error"])
    async with session.guard("typing"):
        keyboard = session.keyboard
        if ready.get("typing"):
            if not text and not ready["empty"]:
                await keyboard.press("Delete")
            elif len(text) > _MAX_TYPED_KEYS or "\n" in text:
                await keyboard.insert_text(text)
            else:
                await keyboard.type(text)
        if enter:
            await keyboard.press("Enter")
    return None


async def _scroll(session: BrowserSession, action: Action) -> str | None:
    down = action.direction == "down"
    if action.element_id is None and action.coordinate is None:
        x, y = await session.evaluate(f"(down) => {ACT_JS}.scrollable(down)", down)
        point: tuple[float, float] | str = (x, y)
    else:
        point = await _target_point(session, action)
    if isinstance(point, str):
        return point
    distance = max(session.options.height - _SCROLL_OVERLAP, session.options.height // 2)
    await session.wheel(*point, distance if down else -distance)
    return None


async def _wait(action: Action) -> str | None:
    await asyncio.sleep(action.seconds or 0.0)
    return None


async def _go_back(session: BrowserSession) -> str | None:
    try:
        return None if await session.go_back() else "there is no page to go back to"
    except BoundaryError as error:
        if error.kind in _POLICY_FAULTS:
            return f"the page before can't be loaded: {error}"
        raise


async def _navigate(session: BrowserSession, action: Action, check_address: AddressCheck) -> str | None:
    url = action.url or ""
    if refusal := check_address(url):
        return refusal
    try:
        await session.goto(url)
    except BoundaryError as error:
        if error.kind in _POLICY_FAULTS:
            return f"{url} can't be loaded: {error}"
        raise
    return None
