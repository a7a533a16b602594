"""`act.js` in the document that holds a point: the page's own, or a frame's that the page can't read."""

from __future__ import annotations

from typing import Any

from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.frames import FRAME_SECONDS, find_frame_at
from webgym_cli.environments.browser.mouse import Point
from webgym_cli.environments.browser.observe import ACT_JS
from webgym_cli.environments.browser.session import BrowserSession

# Where no element is: only the focus says which field is meant.
NOWHERE = (-1.0, -1.0)
# So many frames of other origins may lie within one another.
_DEEPEST = 3


class ActScript:
    """Calls functions of `act.js` at a point. What follows a call at a point is asked of the same document."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._frame: Any = None
        self._offset = 0.0, 0.0

    async def call_at(self, function: str, point: Point, *arguments: object) -> dict[str, Any]:
        """Call a function with a point of the viewport first. A frame that only it can read answers itself."""
        result = await self.call(function, self._shift(point), *arguments)
        for _ in range(_DEEPEST):
            if "frame" not in result:
                return result
            (x, y), (left, top) = result["frame"], self._offset
            place = await find_frame_at(self._session, (x + left, y + top), within=self._frame)
            if place is None:
                break
            self._frame, self._offset = place
            result = await self.call(function, self._shift(point), *arguments)
        return {} if "frame" in result else result

    async def call(self, function: str, *arguments: object) -> dict[str, Any]:
        """Call a function in the document that answered last; the page's own at first. A frame may be gone: then {}."""
        script, given = f"(given) => {ACT_JS}.{function}(...given)", list(arguments)
        if self._frame is None:
            result: dict[str, Any] = await self._session.evaluate(script, given)
            return result
        return await attempt(self._frame.evaluate(script, given), FRAME_SECONDS) or {}

    def _shift(self, point: Point) -> Point:
        """Return a point of the viewport as one of the document that is asked."""
        return point if point == NOWHERE else (point[0] - self._offset[0], point[1] - self._offset[1])
