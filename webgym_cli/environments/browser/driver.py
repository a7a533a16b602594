"""Starts Playwright's driver, a Node.js process that takes its environment from ours."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from webgym_cli.util.secrets import lend_variables

if TYPE_CHECKING:
    from playwright.async_api import Playwright

# Starts that overlap would restore each other's variables, and leave a folder in TMPDIR that is removed later.
_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def start_driver(direct: str = "", **variables: str) -> Playwright:
    """Start a driver with these environment variables; for this process they are as before afterwards.

    `direct`: another host that it reaches without the environment's proxy.
    """
    from playwright.async_api import async_playwright

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_handle_exception)
    async with _LOCKS.setdefault(loop, asyncio.Lock()):
        # A small young generation saves 20 MB.
        # Node.js takes loopback's brackets, and no networks.
        exempt = [entry for entry in (os.environ.get("no_proxy"), "localhost,127.0.0.1,[::1]", direct) if entry]
        variables["no_proxy"] = ",".join(exempt)
        variables["NODE_OPTIONS"] = f"{os.environ.get('NODE_OPTIONS', '')} --max-semi-space-size=1".strip()
        with lend_variables(**variables):
            return await async_playwright().start()


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Playwright raises a driver's end in the calls, and keeps it in a future that nothing reads.
    if "reading from the driver" not in str(context.get("exception")):
        loop.default_exception_handler(context)
