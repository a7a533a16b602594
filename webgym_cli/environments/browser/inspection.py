"""What CDP tells of a document and its scripts can't see: closed shadow roots, and the page's listeners."""

from __future__ import annotations

import asyncio

from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.browser.worlds import PAGE_JS, IsolatedWorld

_NAMES_JS, _KINDS_JS = f"{PAGE_JS}.names", f"{PAGE_JS}.kinds"
_GROUP = "webgym"
# A busy machine needs more than one. Failures are ignored: if the page was replaced or hangs, the next observation
# fails or retries.
_SECONDS = 3.0
# Types of listeners that make an element a target of clicks or drags.
_CLICKS = frozenset({"click", "mousedown", "mouseup", "pointerdown", "pointerup", "dblclick"})
_DROPS = frozenset({"drop", "dragover", "dragenter"})
_ENTRIES = frozenset({"mouseenter", "mouseover", "pointerenter", "pointerover"})
# Number of types of listeners from which on an element is a framework's root.
_MANY_TYPES = 30
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
        nodes = [root["backendNodeId"] for root in roots]
        await _pass_nodes(world, nodes, f"(...roots) => roots.forEach({_NAMES_JS}.adopt)")
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
        types.setdefault(int(listener["backendNodeId"]), set()).add(listener["type"])
    fresh = [node for node, names in types.items() if node not in world.known and names & (_CLICKS | _DROPS | _ENTRIES)]
    fresh = fresh[:_MOST_PASSED]
    world.known.update(fresh)
    roots = [node for node in fresh if len(types[node]) >= _MANY_TYPES]
    clicked = [node for node in fresh if node not in roots and types[node] & _CLICKS]
    zones = [node for node in fresh if node not in roots and types[node] & _DROPS]
    entered = [node for node in fresh if node not in roots and types[node] & _ENTRIES]
    for name, nodes in (("disregard", roots), ("hear", clicked), ("receive", zones), ("enter", entered)):
        await _pass_nodes(world, nodes, f"(...nodes) => nodes.forEach({_KINDS_JS}.{name})")
    if fresh:
        await send("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})


async def _pass_nodes(world: IsolatedWorld, nodes: list[int], function: str) -> None:
    """Call a function with these nodes, as far as our scripts may see them."""
    send, place = world.channel.send, {"objectGroup": _GROUP, "executionContextId": world.context}
    requests = (send("DOM.resolveNode", {"backendNodeId": node, **place}) for node in nodes)
    resolved = await asyncio.gather(*requests, return_exceptions=True)
    objects = [one["object"].get("objectId") for one in resolved if isinstance(one, dict)]
    if given := [{"objectId": one} for one in objects if one]:
        call = {"functionDeclaration": function, "arguments": given, "objectId": given[0]["objectId"]}
        await send("Runtime.callFunctionOn", call)
