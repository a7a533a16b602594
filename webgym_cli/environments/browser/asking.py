"""What a page is asked over its channel: to run a script, to be drawn."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from webgym_cli.environments.browser.cdp import PageConnection
from webgym_cli.environments.browser.failures import ScriptError, has_sign
from webgym_cli.jobs.workers import cancel_tasks

# How the browser says that there is nothing to draw just now, between two documents.
_NOT_NOW = ("unable to capture screenshot", "not attached to an active page")
_PAUSE = 0.05
# Seconds for a picture to come after its document was replaced: mostly it does.
_LAST_CHANCE = 0.3


async def run_script(link: PageConnection, function: str, argument: object) -> Any:
    """Call a JavaScript function in the page and return its value. Raises `ScriptError`, or as the channel."""
    expression = f"({function})({json.dumps(argument)})"
    parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
    # Only with the functions of the browser's tools can a script ask what listens for clicks.
    parameters["includeCommandLineAPI"] = True
    answer = await link.channel.send("Runtime.evaluate", parameters)
    if "exceptionDetails" in answer:
        details = answer["exceptionDetails"]
        raise ScriptError(details.get("exception", {}).get("description") or details.get("text", "it threw"))
    return answer["result"].get("value")


async def capture_screenshot(link: PageConnection) -> bytes:
    """Return the viewport as PNG bytes. Raises the channel's errors.

    A document that is replaced may take the picture's request with it: then the next one is asked. No deadline.
    """
    while True:
        documents = link.traffic.documents
        drawing = asyncio.ensure_future(link.channel.send("Page.captureScreenshot", {"format": "png"}))
        replaced = asyncio.ensure_future(link.traffic.beyond(documents))
        try:
            await asyncio.wait((drawing, replaced), return_when=asyncio.FIRST_COMPLETED)
            if replaced.done() and not drawing.done():
                await asyncio.wait((drawing,), timeout=_LAST_CHANCE)
            if drawing.done():
                return base64.b64decode((await drawing)["data"])
        except Exception as error:
            if not has_sign(error, _NOT_NOW) or not link.is_open:
                raise
            await asyncio.sleep(_PAUSE)
        finally:
            await cancel_tasks(drawing, replaced)
