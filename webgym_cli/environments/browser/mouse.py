"""Mouse input of a session: clicks, wheel, drag and drop, as trusted browser events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from webgym_cli.environments.browser.session import BrowserSession

# A point in CSS pixels of the viewport.
Point = tuple[float, float]
# Keys held during a click -> their bits in the browser's protocol.
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
# Seconds between the clicks of a double click: pages that measure it don't believe in 0 ms.
_BETWEEN = 0.05
# Number of mouse moves to each point of a drag, since pages track the path. A long one has `_PATH_MOVES` in all,
# but 2 to each point: more may not end before the deadline.
_DRAG_MOVES, _PATH_MOVES = 8, 64
# Seconds for which a thing is held before it is moved: boards tell a drag from a scroll by it.
_HOLD = 0.3
# Seconds for which it rests at the end: some look where it is at intervals.
_REST = 0.1


async def click(
    session: BrowserSession, point: Point, *, button: str = "left", clicks: int = 1, held: Iterable[str] = ()
) -> None:
    """Click a point one or more times, with modifier keys held."""
    bits = sum(MODIFIERS[key] for key in held)
    kinds = ("mousePressed", "mouseReleased")
    async with session.guard("clicking", may_close=True):
        for count in range(1, clicks + 1):
            if count > 1:
                await asyncio.sleep(_BETWEEN)
            facts = {"button": button, "clickCount": count, "modifiers": bits}
            await session.send_mouse(*point, *({"type": kind, **facts} for kind in kinds))


async def wheel(session: BrowserSession, point: Point, across: float, down: float) -> None:
    """Scroll the wheel at a point by CSS pixels; positive is right and down."""
    async with session.guard("scrolling", may_close=True):
        await session.send_mouse(*point, {"type": "mouseWheel", "deltaX": across, "deltaY": down})


async def drag(session: BrowserSession, start: Point, *way: Point, hold: float = _HOLD) -> None:
    """Drag from a point through others after `hold` seconds; without others, this is a long press."""
    async with session.guard("dragging", session.options.action_timeout + hold, may_close=True):
        # Playwright's mouse, since it implements drag interception for HTML5 `draggable` elements.
        mouse = session.page.mouse
        await mouse.move(*start)
        await mouse.down()
        await asyncio.sleep(hold)
        for point in way:
            await mouse.move(*point, steps=max(2, min(_DRAG_MOVES, _PATH_MOVES // len(way))))
        if way:
            await mouse.move(*way[-1])
            await asyncio.sleep(_REST)
        await mouse.up()
        session.pointer = (start, *way)[-1]
