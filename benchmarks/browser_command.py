"""How the product starts its browser, so that the bare script starts the very same one."""

from __future__ import annotations

import psutil

from webgym_cli.config.load import load
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.miniwob.environment import browser_for_pages
from webgym_cli.errors import VenvError

_OWN = ("--user-data-dir=", "--remote-debugging-pipe")
"""What each start has for itself."""


async def browser_command() -> list[str]:
    """Start the product's browser once and return its command line, without its profile."""
    async with BrowserPool(browser_for_pages(load().browser)) as pool:
        for pid in pool.processes():
            arguments = psutil.Process(pid).cmdline()
            if any(argument.startswith("--user-data-dir=") for argument in arguments) and not any(
                argument.startswith("--type=") for argument in arguments
            ):
                return [argument for argument in arguments if not argument.startswith(_OWN)]
    raise VenvError("the browser's command line can't be read", hint="webgym doctor")
