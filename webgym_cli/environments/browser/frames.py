"""Observation of, and actions in, frames that their page can't read (cross-origin or sandboxed)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.mouse import Point
from webgym_cli.environments.browser.session import BrowserSession

if TYPE_CHECKING:
    from playwright.async_api import Frame

# The injected scripts are stored under a symbol that page scripts do not encounter.
PAGE_JS = "window[Symbol.for('webgym')]"
OBSERVE_JS, ACT_JS = f"{PAGE_JS}.observe", f"{PAGE_JS}.act"
# A point without element: only the focus determines the field.
NOWHERE = (-1.0, -1.0)
# Maximum nesting depth of frames at a point.
_DEEPEST = 4
# Maximum number of frames per page, and seconds per frame: frames that do not respond are mostly advertisements.
_MOST_FRAMES = 8
_FRAME_SECONDS = 1.0
# Maximum inset of a frame's content in its element (border and padding), in pixels.
_BORDER = 24.0


class ActScript:
    """Calls functions of `act.js` at a point; later calls go to the document that contained the point."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._frame: Frame | None = None
        self._offset = 0.0, 0.0

    async def call_at(self, function: str, point: Point, *arguments: object) -> dict[str, Any]:
        """Call a function with a viewport point first; a frame that the page can't read is called itself."""
        for _ in range(_DEEPEST):
            result = await self.call(function, self._shift(point), *arguments)
            if "frame" not in result:
                return result
            (x, y), (left, top) = result["frame"], self._offset
            place = await _find_frame_at(self._session, (x + left, y + top), within=self._frame)
            if place is None:
                break
            self._frame, self._offset = place
        return {}

    async def call(self, function: str, *arguments: object) -> dict[str, Any]:
        """Call a function in the document of the last `call_at` (at first the page's); {} if its frame is gone."""
        script, given = f"(given) => {ACT_JS}.{function}(...given)", list(arguments)
        if self._frame is None:
            result: dict[str, Any] = await self._session.evaluate(script, given)
            return result
        return await attempt(self._frame.evaluate(script, given), _FRAME_SECONDS) or {}

    def _shift(self, point: Point) -> Point:
        """Convert a viewport point to coordinates of the current document."""
        return point if point == NOWHERE else (point[0] - self._offset[0], point[1] - self._offset[1])


async def list_framed(session: BrowserSession, boxes: Sequence[Sequence[float]], start: int, room: int) -> list[Any]:
    """List the elements of the frames at these boxes of the viewport, as `look()` does, with ids from `start`."""
    session.framed.clear()
    elements: list[Any] = []
    boxes = list(boxes)  # extended in the loop: a parent frame reports its nested frames before they are visited
    for frame in session.page.frames[1:] if boxes else ():
        if len(elements) >= room:
            break
        # A frame that is gone, hangs or is empty contributes no elements.
        looking = _look_into(session, frame, boxes[:_MOST_FRAMES], room - len(elements))
        listed, inner = await attempt(looking, _FRAME_SECONDS) or ([], [])
        boxes += inner
        for one in listed:
            number = start + len(elements)
            session.framed[number] = frame, one["id"]
            elements.append({**one, "id": number})
    return elements


async def locate_framed(frame: Frame, number: int) -> dict[str, Any]:
    """Return the current click point of a frame's element, as `locate()` does."""
    return await attempt(_locate(frame, number), _FRAME_SECONDS) or {"error": "gone"}


async def _find_frame_at(session: BrowserSession, point: Point, within: Frame | None) -> tuple[Frame, Point] | None:
    """Return the smallest frame that contains a viewport point, and its content origin; None if there is none.

    `within`: the frame that it lies in; None for the page.
    """
    candidates: list[tuple[float, Frame, Point]] = []
    for frame in session.page.frames[1:]:
        place = await attempt(_find_frame(frame), _FRAME_SECONDS)
        if place is None or frame == within:
            continue
        left, top, width, height = place
        if left <= point[0] <= left + width and top <= point[1] <= top + height:
            candidates.append((width * height, frame, (left, top)))
    best = min(candidates, key=lambda one: one[0], default=None)
    return best and best[1:]


async def _look_into(
    session: BrowserSession, frame: Frame, boxes: Sequence[Sequence[float]], room: int
) -> tuple[list[Any], list[Any]]:
    """Return the elements of a frame, and the boxes of frames that it can't read, in viewport coordinates.

    Both are empty if the frame's page can read it.
    """
    left, top, width, height = await _find_frame(frame)
    if not any(_overlaps((left, top, width, height), box) for box in boxes):
        return [], []
    script = f"(limit) => [{OBSERVE_JS}.look({{ limit }}), {OBSERVE_JS}.opaque()]"
    listed, inner = await frame.evaluate(script, room)
    for one in listed:
        x, y, *size = one["box"]
        one["box"] = [x + left, y + top, *size]
        one["point"] = [one["point"][0] + left, one["point"][1] + top]
    points = [one["point"] for one in listed]
    reached = await session.evaluate(f"(points) => {OBSERVE_JS}.through(points)", points)
    return list(compress(listed, reached)), [[x + left, y + top, *size] for x, y, *size in inner]


async def _locate(frame: Frame, number: int) -> dict[str, Any]:
    result: dict[str, Any] = await frame.evaluate(f"(id) => {OBSERVE_JS}.locate(id)", number)
    left, top, _, _ = await _find_frame(frame)
    return {"point": [result["point"][0] + left, result["point"][1] + top]} if "point" in result else result


async def _find_frame(frame: Frame) -> tuple[float, float, float, float]:
    """Return the box of a frame's content in the viewport. Raises `LookupError` if it is not shown."""
    element = await frame.frame_element()
    box = await element.bounding_box()
    if box is None:
        raise LookupError("the frame is not shown")
    inset = await element.evaluate("(frame) => [frame.clientLeft, frame.clientTop]")
    return box["x"] + inset[0], box["y"] + inset[1], box["width"], box["height"]


def _overlaps(frame: tuple[float, float, float, float], box: Sequence[float]) -> bool:
    """Whether the visible part of a frame's element, as reported by its page, belongs to this frame."""
    left, top, width, height = frame
    right, bottom = left + width, top + height
    return (
        abs(max(left, 0) - box[0]) < _BORDER
        and abs(max(top, 0) - box[1]) < _BORDER
        and box[0] + box[2] <= right + _BORDER
        and box[1] + box[3] <= bottom + _BORDER
    )
