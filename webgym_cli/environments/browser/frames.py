"""What a page's scripts can't see: frames of other origins, which are observed and acted in; and, as CDP tells, closed
shadow roots and the page's listeners.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, TypeVar

from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.mouse import Point
from webgym_cli.environments.browser.page_connection import PAGE_JS, FrameDocument, IsolatedWorld
from webgym_cli.environments.browser.session import BrowserSession

OBSERVE_JS, ACT_JS, WAITS_JS = f"{PAGE_JS}.observe", f"{PAGE_JS}.act", f"{PAGE_JS}.waits"
_FRAMES_JS = f"{PAGE_JS}.frames"
WAIT_UNTIL_IDLE = f"""async ([limit, clipboard]) => {{
  await {WAITS_JS}.waitUntilIdle(limit);
  return {ACT_JS}.copied(clipboard);
}}"""
SILENT_FRAME = "A frame did not answer; its elements are not listed"
# A point without element: only the focus determines the field.
NOWHERE = (-1.0, -1.0)
# Where a document begins in the viewport, and the size of its pixels there.
_Origin = tuple[float, float, float]
_WHOLE: _Origin = (0.0, 0.0, 1.0)
# Maximum nesting depth of frames at a point.
_DEEPEST = 4
# Maximum number of frames per page, and seconds per frame: frames that do not respond are mostly advertisements.
_MOST_FRAMES = 8
_FRAME_SECONDS = 2.0
_NAMES_JS, _KINDS_JS = f"{PAGE_JS}.names", f"{PAGE_JS}.kinds"
_GROUP = "webgym"
# A busy machine needs more than one. Failures are ignored: if the page was replaced or hangs, the next observation
# fails or retries.
_SECONDS = 3.0
# Types of listeners that make an element a target of the mouse: on many pages most listeners are of others.
_TYPES = re.compile(
    r"click|dblclick|contextmenu|drop|touchstart|wheel|(mouse|pointer)(down|up|enter|over)|drag(over|enter)"
)
# Maximum number of elements whose listeners are passed at a time.
_MOST_PASSED = 3000

T = TypeVar("T")


class ActScript:
    """Calls functions of `act.js` at a point; later calls go to the document that contained the point."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._document = FrameDocument()
        self._offset = _WHOLE

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
        left, top, scale = self._offset
        return point if point == NOWHERE else ((point[0] - left) / scale, (point[1] - top) / scale)


class _FrameCalls:
    """Asks frames; one that is late once more, up to an action's deadline for all, unless it did not answer before."""

    def __init__(self, session: BrowserSession) -> None:
        self._known, session.silent = session.silent, set()
        self._silent = session.silent
        self._end = asyncio.get_running_loop().time() + session.options.action_timeout

    async def ask(self, frame: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return what a frame answers; None if it is gone, or does not and is noted."""
        clock = asyncio.get_running_loop()
        late = [] if frame in self._known else [self._end]
        for end in (clock.time() + _FRAME_SECONDS, *late):
            try:
                async with asyncio.timeout_at(end):
                    return await ask()
            except TimeoutError:
                continue
            except Exception:  # noqa: BLE001  Playwright's boundary: the frame is gone
                return None
        self._silent.add(frame)
        return None


async def list_framed(session: BrowserSession, start: int, room: int) -> list[Any]:
    """List the elements of the frames that the page can't read, as `look()` does, with ids from `start`."""
    session.framed.clear()
    calls = _FrameCalls(session)
    elements: list[Any] = []
    for document in await _enter_frames(session, calls):
        # A frame that is gone, hangs or is empty contributes no elements.
        look = partial(_look_into, session, document, room - len(elements))
        for one in await calls.ask(document.id, look) or []:
            session.framed[start + len(elements)] = document, one["id"]
            elements.append({**one, "id": start + len(elements)})
    return elements


async def wait_in_frames(session: BrowserSession, seconds: float) -> None:
    """Wait until the frames are idle that the page can't read, each for at most a time."""

    async def wait_in(document: FrameDocument) -> None:
        result = await _call(session, document, WAIT_UNTIL_IDLE, [seconds * 1000, session.pages.clipboard])
        session.pages.clipboard = result["copied"] or session.pages.clipboard

    waiting = (attempt(wait_in(document), seconds + _FRAME_SECONDS) for document in await _enter_frames(session))
    await asyncio.gather(*waiting)


async def locate_framed(
    session: BrowserSession, document: FrameDocument, number: int, position: Point | None, path: Sequence[Point]
) -> dict[str, Any]:
    """Return the current points of a frame's element, as `locate()` does."""
    try:
        # As long as any action: on a busy machine a frame's process may answer late.
        async with asyncio.timeout(session.options.action_timeout):
            origin = await _find_origin(session, document)
            if origin is None:
                return {"error": "is no longer on the page"}
            result: dict[str, Any] = await _call(session, document, f"{OBSERVE_JS}.locate", [number, position, path])
    except TimeoutError:
        return {"error": "is in a frame that does not answer"}
    if "points" in result:
        result["points"] = [_to_viewport(point, origin) for point in result["points"]]
    return result


async def _look_into(session: BrowserSession, document: FrameDocument, room: int) -> list[Any]:
    """Return a frame's elements in viewport coordinates."""
    origin = await _find_origin(session, document)
    if origin is None or room <= 0:
        return []
    await find_listeners(session, document.id)
    listed = await _call(session, document, f"(limit) => {OBSERVE_JS}.look({{ limit }})", room)
    for one in listed:
        one["node"] = f"{document.id}/{one['node']}"
        one["box"] = [*_to_viewport(one["box"], origin), *(side * origin[2] for side in one["box"][2:])]
        one["point"] = _to_viewport(one["point"], origin)
    points = [one["point"] for one in listed]
    return list(compress(listed, await session.evaluate(f"(points) => {_FRAMES_JS}.through(points)", points)))


async def _enter_frames(session: BrowserSession, calls: _FrameCalls | None = None) -> list[FrameDocument]:
    """Return the frames in sight that the page can't read and that answer, each before those within it."""
    if len(session.page.frames) == 1:
        return []

    async def ask(frame: str, asking: Callable[[], Awaitable[T]]) -> T | None:
        return await (calls.ask(frame, asking) if calls else attempt(asking(), _FRAME_SECONDS))

    queue, answering = [FrameDocument()], []
    for parent in queue:  # extended in the loop
        numbers = await ask(parent.id, partial(_call, session, parent, f"() => {_FRAMES_JS}.opaque()", None))
        answering += [parent] if numbers is not None else []
        for number in (numbers or [])[: _MOST_FRAMES + 1 - len(queue)]:
            if document := await ask(f"{parent.id}/{number}", partial(_enter, session, parent, number)):
                queue.append(document)
    return answering[1:]


async def _enter(session: BrowserSession, parent: FrameDocument, number: int) -> FrameDocument:
    worlds = (await session.connection()).worlds
    inner = await worlds.enter(f"{_FRAMES_JS}.frame({number})", parent.id, session.page, session.options.action_timeout)
    return FrameDocument(inner, (*parent.hops, (parent.id, number)))


async def _call(session: BrowserSession, document: FrameDocument, function: str, argument: object) -> Any:
    if not document.id:
        return await session.evaluate(function, argument)
    return await (await session.connection()).worlds.call(function, argument, document.id)


def _to_viewport(point: Sequence[float], origin: _Origin) -> Point:
    return origin[0] + point[0] * origin[2], origin[1] + point[1] * origin[2]


async def _find_origin(session: BrowserSession, document: FrameDocument) -> _Origin | None:
    """Return where a frame's content begins in the viewport, and its scale; None if it is gone."""
    whole = _WHOLE
    for frame, number in document.hops:
        holder = FrameDocument(frame)
        origin = await _call(session, holder, f"(number) => {_FRAMES_JS}.originOf(number)", number)
        if origin is None:
            return None
        whole = *_to_viewport(origin, whole), whole[2] * origin[2]
    return whole


async def open_closed_roots(session: BrowserSession) -> None:
    """Pass the closed roots of custom elements to `names.js`, which lists their content. Queries each host once."""
    if session.options.isolated_script:
        await attempt(_adopt_roots(session), _SECONDS)


async def find_listeners(session: BrowserSession, frame: str = "") -> None:
    """Pass the elements of a frame (default: the main one) with listeners for clicks to `kinds.js`, each once."""
    if session.options.isolated_script:
        await attempt(_pass_listeners(session, frame), _SECONDS)


async def _adopt_roots(session: BrowserSession) -> None:
    worlds = (await session.connection()).worlds
    world = await worlds.find()
    send = world.channel.send
    hosts = await worlds.evaluate({"expression": f"{PAGE_JS}.frames.hosts()", "objectGroup": _GROUP})
    listed = await send("Runtime.getProperties", {"objectId": hosts["objectId"], "ownProperties": True})
    for host in (one["value"]["objectId"] for one in listed["result"] if one["name"].isdigit()):
        node = (await send("DOM.describeNode", {"objectId": host}))["node"]
        roots = (root for root in node.get("shadowRoots", ()) if root.get("shadowRootType") == "closed")
        await _pass_nodes(world, {root["backendNodeId"]: [] for root in roots}, f"{_NAMES_JS}.adopt")
    await send("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})


async def _pass_listeners(session: BrowserSession, frame: str) -> None:
    worlds = (await session.connection()).worlds
    await worlds.evaluate({"expression": "0"}, frame)  # in a new world if the document is new
    world = await worlds.find(frame)
    send = world.channel.send
    if not world.document:
        # Of the page's world: listeners of other worlds are not told.
        if frame:
            own = await worlds.evaluate({"expression": "document"}, frame)
            node = (await send("DOM.describeNode", {"objectId": own["objectId"]}))["node"]
            remote = (await send("DOM.resolveNode", {"backendNodeId": node["backendNodeId"]}))["object"]
        else:
            remote = (await send("Runtime.evaluate", {"expression": "document"}))["result"]
        world.document = str(remote["objectId"])
    request = {"objectId": world.document, "depth": -1, "pierce": True}
    types: dict[int, set[str]] = {}
    for listener in (await send("DOMDebugger.getEventListeners", request))["listeners"]:
        if listener["type"] == "touchstart" and listener["passive"]:
            continue  # it is for scrolling, while one that may prevent it is for things that are dragged
        types.setdefault(int(listener["backendNodeId"]), set()).add(listener["type"])
    fresh = [node for node in types if node not in world.known and any(map(_TYPES.fullmatch, types[node]))]
    world.known.update(fresh[:_MOST_PASSED])
    if fresh:
        await _pass_nodes(world, {node: sorted(types[node]) for node in fresh[:_MOST_PASSED]}, f"{_KINDS_JS}.hear")
        await send("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})


async def _pass_nodes(world: IsolatedWorld, nodes: Mapping[int, Sequence[str]], function: str) -> None:
    """Call a function with each of these nodes and its words, as far as our scripts may see them."""
    send, place = world.channel.send, {"objectGroup": _GROUP, "executionContextId": world.context}
    requests = (send("DOM.resolveNode", {"backendNodeId": node, **place}) for node in nodes)
    resolved = await asyncio.gather(*requests, return_exceptions=True)
    pairs = zip(resolved, nodes.values(), strict=True)
    objects = [(one["object"].get("objectId"), words) for one, words in pairs if isinstance(one, dict)]
    known = [(one, words) for one, words in objects if one]
    if known:
        each = f"(words, ...nodes) => nodes.forEach((node, at) => {function}(node, words[at]))"
        given = [{"value": [words for _, words in known]}, *({"objectId": one} for one, _ in known)]
        await send("Runtime.callFunctionOn", {"functionDeclaration": each, "arguments": given, "objectId": known[0][0]})
