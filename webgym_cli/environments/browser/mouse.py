"""The mouse of a session: clicks, the wheel, dragging. Events of the browser, as a person's hand makes them."""

from __future__ import annotations

from collections.abc import Iterable

from webgym_cli.environments.browser.session import BrowserSession

# A point in CSS pixels of the viewport.
Point = tuple[float, float]
# Keys held during a click -> their bits in the browser's protocol.
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
# So many moves lie between picking something up and letting it go: pages follow the way.
_DRAG_MOVES = 8


async def click(
    session: BrowserSession, point: Point, *, button: str = "left", clicks: int = 1, held: Iterable[str] = ()
) -> None:
    """Click a point so many times in a row, with keys held."""
    bits = sum(MODIFIERS[key] for key in held)
    events = [
        {"type": kind, "button": button, "clickCount": count, "modifiers": bits}
        for count in range(1, clicks + 1)
        for kind in ("mousePressed", "mouseReleased")
    ]
    async with session.guard("clicking"):
        page = session.page
        try:
            await session.send_mouse(*point, *events)
        except Exception as error:
            if not session.pages.moved_on(page, error):  # the click closed the page
                raise


async def wheel(session: BrowserSession, point: Point, across: float, down: float) -> None:
    """Turn the wheel over a point by so many CSS pixels, to the right and down."""
    async with session.guard("scrolling"):
        await session.send_mouse(*point, {"type": "mouseWheel", "deltaX": across, "deltaY": down})


async def drag(session: BrowserSession, start: Point, end: Point) -> None:
    """Press the button at a point, move to another and let it go there."""
    async with session.guard("dragging"):
        # Playwright's mouse, for what pages declare as draggable: it delivers what Chrome only offers to be dragged.
        mouse = session.page.mouse
        await mouse.move(*start)
        await mouse.down()
        await mouse.move(*end, steps=_DRAG_MOVES)
        await mouse.up()
        session.pointer = end
