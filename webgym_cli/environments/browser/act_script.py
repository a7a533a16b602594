"""`act.js` in the document that holds a point: the page's own, or a frame's that the page can't read."""

from __future__ import annotations

import asyncio
from typing import Any

from webgym_cli.environments.browser.frames import FRAME_SECONDS, find_frame_at
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

    async def call_at(self, function: str, point: tuple[float, float], *arguments: object) -> dict[str, Any]:
        """Call a function with a point of the viewport first. A frame that only it can read answers itself."""
        result = await self.call(function, self._shift(point), *arguments)
        for _ in range(_DEEPEST):
            if "frame" not in result:
                return result
            x, y = result["frame"]
            place = x + self._offset[0], y + self._offset[1]
            place_in_frame = await find_frame_at(self._session, place, within=self._frame)
            if place_in_frame is None:
                break
            self._frame, self._offset = place_in_frame
            result = await self.call(function, self._shift(point), *arguments)
        return {} if "frame" in result else result

    async def call(self, function: str, *arguments: object) -> dict[str, Any]:
        """Call a function in the document that answered last; the page's own at first."""
        script = f"(given) => {ACT_JS}.{function}(...given)"
        if self._frame is None:
            result: dict[str, Any] = await self._session.evaluate(script, list(arguments))
            return result
        try:
            async with asyncio.timeout(FRAME_SECONDS):
                result = await self._frame.evaluate(script, list(arguments))
                return result
        except Exception:  # noqa: BLE001  Playwright's boundary: the frame went away, or hangs
            return {}

    def _shift(self, point: tuple[float, float]) -> list[float]:
        """Return a point of the viewport as one of the document that is asked."""
        if point == NOWHERE:
            return list(point)
        return [point[0] - self._offset[0], point[1] - self._offset[1]]
