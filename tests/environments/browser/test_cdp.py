"""The direct connection to a browser, which a scripted one answers."""

import json

import pytest
from websockets.asyncio.server import serve

from webgym_cli.environments.browser.cdp import CDPConnection, CDPError
from webgym_cli.environments.browser.page_activity import PageActivity


async def closing_browser(socket):
    """Tell of a page; what is asked of it ends its session, and that the page is gone is not told yet."""
    async for raw in socket:
        record = json.loads(raw)
        if record["method"] == "Target.setDiscoverTargets":
            created = {"method": "Target.targetCreated", "params": {"targetInfo": {"targetId": "page"}}}
            await socket.send(json.dumps(created))
        elif "sessionId" in record:
            await socket.send(json.dumps({"method": "Target.detachedFromTarget", "params": {"sessionId": "one"}}))
            continue
        await socket.send(json.dumps({"id": record["id"], "result": {"sessionId": "one"}}))


async def test_a_page_is_closed_once_its_session_has_ended():
    async with serve(closing_browser, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = await CDPConnection.open(f"ws://127.0.0.1:{port}")
        channel = await connection.attach("page", PageActivity("page"))
        assert channel.is_open
        with pytest.raises(CDPError, match="target closed"):
            await channel.send("Runtime.evaluate")
        assert not channel.is_open
        await connection.close()
