"""Observation of, and actions in, frames that their page can't read (cross-origin or sandboxed)."""

from __future__ import annotations

import asyncio
from itertools import compress
from typing import Any

from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.mouse import Point
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.browser.worlds import FrameDocument

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


class ActScript:
    """Calls functions of `act.js` at a point; later calls go to the document that contained the point."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._document = FrameDocument()
        self._offset = 0.0, 0.0

    async def call_at(self, function: str, point: Point, *arguments: object) -> dict[str, Any]:
        """Call a function with a viewport point first; a frame that the page can't read is called itself."""
        for _ in range(_DEEPEST):
            result = await self.call(function, self._shift(point), *arguments)
            if "frame" not in result:
                return result
            self._document = await _enter(self._session, self._document, result["frame"])
            self._offset = await _find_origin(self._session, self._document) or self._offset
        return {}

    async def call(self, function: str, *arguments: object) -> dict[str, Any]:
        """Call a function in the document of the last `call_at`; at first that is the page's."""
        script = f"(given) => {ACT_JS}.{function}(...given)"
        result: dict[str, Any] = await _call(self._session, self._document, script, list(arguments))
        return result

    def _shift(self, point: Point) -> Point:
        """Convert a viewport point to coordinates of the current document."""
        return point if point == NOWHERE else (point[0] - self._offset[0], point[1] - self._offset[1])


async def list_framed(session: BrowserSession, numbers: list[int], start: int, room: int) -> list[Any]:
    """List the elements of the page's frames with these numbers, as `look()` does, with ids from `start`."""
    session.framed.clear()
    elements: list[Any] = []
    queue = [(FrameDocument(), number) for number in numbers[:_MOST_FRAMES]]
    for parent, number in queue:  # extended in the loop by the frames within
        if len(elements) >= room:
            break
        # A frame that is gone, hangs or is empty contributes no elements.
        looking = _look_into(session, parent, number, room - len(elements))
        document, listed, inner = await attempt(looking, _FRAME_SECONDS) or (parent, [], [])
        queue += [(document, one) for one in inner[: _MOST_FRAMES - len(queue)]]
        for one in listed:
            session.framed[start + len(elements)] = document, one["id"]
            elements.append({**one, "id": start + len(elements)})
    return elements


async def locate_framed(session: BrowserSession, document: FrameDocument, number: int) -> dict[str, Any]:
    """Return the current click point of a frame's element, as `locate()` does."""
    try:
        # As long as any action: on a busy machine a frame's process may answer late.
        async with asyncio.timeout(session.options.action_timeout):
            origin = await _find_origin(session, document)
            if origin is None:
                return {"error": "gone"}
            result: dict[str, Any] = await _call(session, document, f"(id) => {OBSERVE_JS}.locate(id)", number)
    except TimeoutError:
        return {"error": "silent"}
    if "point" in result:
        result["point"] = [result["point"][0] + origin[0], result["point"][1] + origin[1]]
    return result


async def _look_into(
    session: BrowserSession, parent: FrameDocument, number: int, room: int
) -> tuple[FrameDocument, list[Any], list[int]]:
    """Return a frame, its elements in viewport coordinates, and the numbers of frames that it can't read."""
    document = await _enter(session, parent, number)
    origin = await _find_origin(session, document)
    if origin is None:
        raise LookupError("the frame is gone")
    script = f"(limit) => [{OBSERVE_JS}.look({{ limit }}), {OBSERVE_JS}.opaque()]"
    listed, inner = await _call(session, document, script, room)
    for one in listed:
        one["node"] = f"{document.id}/{one['node']}"
        x, y, *size = one["box"]
        one["box"] = [x + origin[0], y + origin[1], *size]
        one["point"] = [one["point"][0] + origin[0], one["point"][1] + origin[1]]
    points = [one["point"] for one in listed]
    reached = await session.evaluate(f"(points) => {OBSERVE_JS}.through(points)", points)
    return document, list(compress(listed, reached)), inner


async def _enter(session: BrowserSession, parent: FrameDocument, number: int) -> FrameDocument:
    worlds = (await session.connection()).worlds
    inner = await worlds.enter(f"{OBSERVE_JS}.frame({number})", parent.id, session.page)
    return FrameDocument(inner, (*parent.hops, (parent.id, number)))


async def _call(session: BrowserSession, document: FrameDocument, function: str, argument: object) -> Any:
    if not document.id:
        return await session.evaluate(function, argument)
    return await (await session.connection()).worlds.call(function, argument, document.id)


async def _find_origin(session: BrowserSession, document: FrameDocument) -> Point | None:
    """Return where a frame's content begins in the viewport; None if it is gone."""
    left = top = 0.0
    for frame, number in document.hops:
        holder = FrameDocument(frame)
        origin = await _call(session, holder, f"(number) => {OBSERVE_JS}.originOf(number)", number)
        if origin is None:
            return None
        left, top = left + origin[0], top + origin[1]
    return left, top
