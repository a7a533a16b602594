"""What the tests of the environments share: one browser for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.find import find_chromium
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.miniwob import MiniWobPool
from webgym_cli.errors import RoleError
from webgym_cli.records.action import InteractionMode


@pytest.fixture(scope="session")
def chromium() -> str:
    try:
        return str(find_chromium(Settings().browser))
    except RoleError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
async def browsers(chromium: str) -> AsyncIterator[BrowserPool]:
    async with BrowserPool(Settings().browser) as pool:
        yield pool


@pytest.fixture(scope="session")
async def marked(chromium: str) -> AsyncIterator[MiniWobPool]:
    async with MiniWobPool(Settings(), InteractionMode.SET_OF_MARKS) as pool:
        yield pool


@pytest.fixture(scope="session")
async def pointed(chromium: str) -> AsyncIterator[MiniWobPool]:
    async with MiniWobPool(Settings(), InteractionMode.COORDINATES) as pool:
        yield pool
