"""What the tests of the environments share: one browser for all of them."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.environments.lab import served_with_sites
from tests.environments.visits import SmallWeb, Visit, small_web
from tests.environments.webarena.webarena_mail import MailServer
from tests.executable import needs_chromium
from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.miniwob.environment import MiniWobPool
from webgym_cli.records.action import InteractionMode


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of the tests are on loopback or nowhere; a proxy of the person who runs them has neither."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="session")
def chromium() -> str:
    return needs_chromium()


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


@pytest.fixture(scope="session")
async def local_web(chromium: str) -> AsyncIterator[SmallWeb]:
    async with small_web() as web:
        yield web


@pytest.fixture
def lab() -> Iterator[None]:
    with served_with_sites():
        yield


@pytest.fixture
async def mail() -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        yield server


@pytest.fixture
async def visit(local_web: SmallWeb) -> AsyncIterator[Visit]:
    """One episode on the local web; what came before is forgotten."""
    local_web.odd.hits.clear()
    local_web.private.hits.clear()
    local_web.pool.gate._refused.clear()
    yield local_web.visit()
    for item in local_web.visits:
        await item.environment.close()
    local_web.visits.clear()
