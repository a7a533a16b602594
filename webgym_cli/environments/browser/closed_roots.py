"""Access to closed shadow roots, which page scripts can't read but CDP can."""

from __future__ import annotations

from webgym_cli.environments.browser.failures import attempt
from webgym_cli.environments.browser.frames import PAGE_JS
from webgym_cli.environments.browser.session import BrowserSession

_NAMES_JS = f"{PAGE_JS}.names"
_GROUP = "webgym"
_SECONDS = 1.0


async def open_closed_roots(session: BrowserSession) -> None:
    """Pass the closed roots of custom elements to `names.js`, which lists their content. Queries each host once."""
    # Failures are ignored: if the page was replaced or hangs, the next observation fails or retries.
    await attempt(_adopt_roots(session), _SECONDS)


async def _adopt_roots(session: BrowserSession) -> None:
    send = (await session.connection()).channel.send
    hosts = await send("Runtime.evaluate", {"expression": f"{_NAMES_JS}.hosts()", "objectGroup": _GROUP})
    listed = await send("Runtime.getProperties", {"objectId": hosts["result"]["objectId"], "ownProperties": True})
    for host in (one["value"]["objectId"] for one in listed["result"] if one["name"].isdigit()):
        node = (await send("DOM.describeNode", {"objectId": host}))["node"]
        for root in (root for root in node.get("shadowRoots", ()) if root.get("shadowRootType") == "closed"):
            place = {"backendNodeId": root["backendNodeId"], "objectGroup": _GROUP}
            resolved = (await send("DOM.resolveNode", place))["object"]["objectId"]
            function = f"function() {{ {_NAMES_JS}.adopt(this); }}"
            await send("Runtime.callFunctionOn", {"objectId": resolved, "functionDeclaration": function})
    await send("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})
