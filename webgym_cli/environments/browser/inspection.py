"""What CDP tells of a document and its scripts can't see: closed shadow roots, and the page's listeners."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.browser.worlds import PAGE_JS, IsolatedWorld

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
