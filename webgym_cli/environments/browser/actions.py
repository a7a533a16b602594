"""Executes the agent's actions on a session, in both interaction modes, with real input events.

Each action has one executor, independent of its name in an action set. A well-formed action that can't be executed
returns an error text for the policy; only infrastructure failures raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from webgym_cli.environments.browser import mouse
from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.field_actions import press_keys, select_option, type_text, upload_files
from webgym_cli.environments.browser.frames import OBSERVE_JS, ActScript, locate_framed
from webgym_cli.environments.browser.keys import find_key
from webgym_cli.environments.browser.observe import ElementSnapshot
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import NORMALISED, Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.trajectory import Tab
from webgym_cli.records.webrl import AnyAction, WebRLAction
from webgym_cli.util.optional import map_known

if TYPE_CHECKING:
    from playwright.async_api import Page

# Returns the reason why an address may not be visited; None if it may.
AddressCheck = Callable[[str], str | None]
# The point is None for an action without one; the executor then uses the mouse position or the focus.
_Executor = Callable[[BrowserSession, Action, mouse.Point | None], Awaitable[str | None]]

# The policy chose the address: a page that can't be loaded is an action error, not an infrastructure failure.
_POLICY_FAULTS = (FailureKind.NAVIGATION_FAILED, FailureKind.PAGE_TIMEOUT)
# Overlap of the viewports before and after a scroll, in pixels.
_SCROLL_OVERLAP = 50
# Seconds between two looks for a text, and of a look into one frame.
_POLL, _FRAME_SECONDS = 0.2, 2.0


async def perform_action(session: BrowserSession, action: AnyAction, check_address: AddressCheck) -> str | None:
    """Execute one action. Returns None, or the reason for a refusal. Actions that end an episode do not come here."""
    return await tell_exception(_perform(session, action, check_address))


async def tell_exception(acting: Awaitable[str | None]) -> str | None:
    """Return the result of an action's executor. Its exceptions become the reason why the action failed.

    Raises `BoundaryError` if browser or page failed; what the driver refuses is the action's fault.
    """
    try:
        return await acting
    except BoundaryError as error:
        if error.kind not in (FailureKind.ENVIRONMENT_ERROR, FailureKind.PAGE_ERROR):
            raise
        return f"the action failed: {error}"
    except Exception as error:  # noqa: BLE001  one reply must not end an episode, let alone the rollout
        return f"the action failed: {type(error).__name__}: {error}"


async def _perform(session: BrowserSession, action: AnyAction, check_address: AddressCheck) -> str | None:
    if isinstance(action, WebRLAction):
        action = action.as_action()
    if not isinstance(action, Action):
        raise ValueError(f"{action.name} is not an action of this environment")
    if action.url is not None and (refusal := check_address(action.url)):
        return refusal
    executor = _EXECUTORS.get(action.name)
    if executor is None:
        raise ValueError(f"{action.name} is not an action on the browser")
    point = await _find_point(session, action)
    return point if isinstance(point, str) else await executor(session, action, point)


def normalise_point(point: tuple[float, float], size: tuple[float, float]) -> tuple[float, float]:
    """Return a point in CSS pixels as whole thousandths of a size."""
    x, y = (min(max(round(axis / side * NORMALISED), 0), NORMALISED) for axis, side in zip(point, size, strict=True))
    return float(x), float(y)


def point_at_elements(action: Action, seen: Sequence[ElementSnapshot], size: tuple[int, int]) -> Action:
    """Return an action on listed elements as one at their points. `size`: of the viewport in CSS pixels."""
    changes: dict[str, object] = {"position": None, "to_position": None}
    ends = (("", action.element_id, action.position), ("to_", action.to_element_id, action.to_position))
    for prefix, number, position in ends:
        if number is not None:
            point = seen[number].element.point_at(position) if position else seen[number].point
            changes |= {f"{prefix}element_id": None, f"{prefix}coordinate": normalise_point(point, size)}
    if action.path and action.to_element_id is not None:
        element = seen[action.to_element_id].element
        changes["path"] = tuple(normalise_point(element.point_at(point), size) for point in action.path)
    return action.model_copy(update=changes)


async def locate_element(
    session: BrowserSession, element_id: int, position: mouse.Point | None = None, path: Sequence[mouse.Point] = ()
) -> list[mouse.Point] | str:
    """Return a point of a listed element in CSS pixels and those of a path, or why it can't be clicked there.

    `position`, and all of `path`: 0 to 1000 of its visible box on both axes; None: the element's click point.
    """
    if framed := session.framed.get(element_id):
        result = await locate_framed(session, *framed, position, path)
    else:
        result = await session.evaluate(f"{OBSERVE_JS}.locate", [element_id, position, path])
    if "points" in result:
        return [(x, y) for x, y in result["points"]]
    if "error" in result:
        return f"element {element_id} {result['error']}"
    known = f"they are numbered 0 to {result['count'] - 1}" if result["count"] else "none are marked"
    return f"there is no element {element_id}; {known}"


async def _find_point(session: BrowserSession, action: Action) -> mouse.Point | str | None:
    """Return an action's point in CSS pixels, an error text, or None for an action without element and coordinate."""
    if action.element_id is not None:
        points = await locate_element(session, action.element_id, action.position)
        return points if isinstance(points, str) else points[0]
    return map_known(partial(_find_pixels, session), action.coordinate)


def _find_pixels(session: BrowserSession, coordinate: mouse.Point) -> mouse.Point:
    width, height = session.options.width, session.options.height
    # The last normalised value is the last pixel, not the first one outside.
    return min(coordinate[0] / NORMALISED * width, width - 1), min(coordinate[1] / NORMALISED * height, height - 1)


async def _find_way(session: BrowserSession, action: Action) -> list[mouse.Point] | str:
    """Return the points that a drag passes, and its end."""
    path = action.path or ()
    if action.to_element_id is not None:
        points = await locate_element(session, action.to_element_id, action.to_position, path)
        return points if isinstance(points, str) else [*points[1:], points[0]]
    return [*(_find_pixels(session, point) for point in (*path, action.to_coordinate) if point)]


async def _click(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    modifiers = [find_key(name) for name in action.modifiers or ()]
    if any(key not in mouse.MODIFIERS for key in modifiers):
        return f"a key that is held must be one of {', '.join(mouse.MODIFIERS)}"
    keys, at = [key for key in modifiers if key], point or session.pointer
    if action.seconds:
        await mouse.drag(session, at, hold=action.seconds)
    else:
        await mouse.click(session, at, button=action.button or "left", clicks=action.clicks or 1, held=keys)
    return None


async def _drag(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    way = await _find_way(session, action)
    if isinstance(way, str):
        return way
    script, start = ActScript(session), point or session.pointer
    await script.call("watch", start, True)
    await session.move(*start)
    await script.call("settled")
    await mouse.drag(session, start, *way)
    return None if (await script.call("hasChanged"))["changed"] else "nothing moved: what is there can't be dragged"


async def _scroll(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    axis, back = int(action.direction not in ("left", "right")), action.direction in ("up", "left")
    script = ActScript(session)
    target = await script.call("wheelAt", point or (session.pointer if action.here else None), action.direction)
    x, y = target["point"]
    side = (session.options.width, session.options.height)[axis]
    share = session.options.scroll_share if action.amount is None else action.amount / NORMALISED
    if share is None:  # a page of what scrolls there, such as a list in a dialog: nothing is passed unseen
        side = min(side, target["size"][axis])
    distance = max(side - _SCROLL_OVERLAP, side // 2) if share is None else side * share
    turned = [0.0, 0.0]
    turned[axis] = -distance if back else distance
    await script.call("watch", (x, y))
    await mouse.wheel(session, (x, y), *turned)
    if (await script.call("hasChanged"))["changed"]:
        return None
    return f"nothing moved: what is there can't be scrolled {action.direction} any further"


async def _wait(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    """Wait for a time, or until a text is in sight."""
    seconds = action.seconds or 0.0
    if action.text is None:
        await asyncio.sleep(seconds)
        return None
    clock = asyncio.get_running_loop()
    end = clock.time() + seconds
    while not await _shows(session, action.text):
        if clock.time() > end:
            return f"the text did not come within {seconds:g} s"
        await asyncio.sleep(_POLL)
    return None


async def _shows(session: BrowserSession, text: str) -> bool:
    """Whether a text is visible in one of the page's frames. One that is replaced or hangs shows nothing."""
    for frame in session.page.frames:
        if await attempt(frame.get_by_text(text).filter(visible=True).count(), _FRAME_SECONDS):
            return True
    return False


async def _navigate(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    url = action.url or ""
    return await _load(url, session.goto(url))


async def _load(what: str, loading: Awaitable[object], way: str = "") -> str | None:
    """Load a page. Returns None, or the reason why it did not load."""
    try:
        return f"there is no page to go {way} to" if await loading is False else None
    except BoundaryError as error:
        if error.kind in _POLICY_FAULTS:
            return f"{what} can't be loaded: {error}"
        raise


async def _new_tab(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    if session.pages.is_full:
        return f"{len(session.pages)} tabs are open, no more can be"
    await new_tab(session)
    return await _navigate(session, action, point) if action.url else None


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


_EXECUTORS: dict[ActionName, _Executor] = {
    ActionName.CLICK: _click,
    ActionName.HOVER: lambda session, action, point: session.move(*(point or session.pointer)),
    ActionName.DRAG: _drag,
    ActionName.TYPE: type_text,
    ActionName.KEY: press_keys,
    ActionName.SELECT_OPTION: select_option,
    ActionName.UPLOAD_FILE: upload_files,
    ActionName.SCROLL: _scroll,
    ActionName.WAIT: _wait,
    ActionName.GO_BACK: lambda session, action, point: _load("the page before", session.go_back(), "back"),
    ActionName.GO_FORWARD: lambda session, action, point: _load("the page after", session.go_forward(), "forward"),
    ActionName.RELOAD: lambda session, action, point: _load("the page", session.reload()),
    ActionName.NAVIGATE: _navigate,
    ActionName.NEW_TAB: _new_tab,
    ActionName.SWITCH_TAB: lambda session, action, point: show_tab(session, action.tab or 0),
    ActionName.CLOSE_TAB: lambda session, action, point: close_tab(session, action.tab),
    ActionName.ZOOM: lambda session, action, point: asyncio.sleep(0),  # the zoom applies to the next screenshot
    ActionName.ACCEPT_DIALOG: lambda session, action, point: asyncio.sleep(0, "no dialog is open"),
    ActionName.DISMISS_DIALOG: lambda session, action, point: asyncio.sleep(0, "no dialog is open"),
}
