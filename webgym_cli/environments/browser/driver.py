"""Starts Playwright's driver, a Node.js process that takes its environment from ours."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from playwright.async_api import Playwright

# Starts that overlap would restore each other's variables, and leave a folder in TMPDIR that is removed later.
_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def start_driver(**variables: str) -> Playwright:
    """Start a driver with these environment variables; for this process they are as before afterwards."""
    from playwright.async_api import async_playwright

    async with _LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        with _set_environment(variables):
            return await async_playwright().start()


@contextmanager
def _set_environment(variables: dict[str, str]) -> Iterator[None]:
    # And a small young generation: 20 MB less.
    variables = variables | {"NODE_OPTIONS": f"{os.environ.get('NODE_OPTIONS', '')} --max-semi-space-size=1".strip()}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
