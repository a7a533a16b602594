import pytest
import pytest_asyncio

from tests.environments.fixture_sites.visiting import Visitor
from tests.environments.lab import LabServer
from tests.executable import needs_chromium


@pytest_asyncio.fixture(scope="session")
async def sites():
    """All sites, without faults."""
    async with LabServer() as server:
        yield server


@pytest_asyncio.fixture(scope="session")
async def chromium(sites):
    """A Chromium in which the hosts of the sites exist."""
    from playwright.async_api import async_playwright

    names = f"--host-resolver-rules=MAP *.test {sites.address}"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=needs_chromium(), args=["--no-sandbox", names])
        yield browser
        await browser.close()


@pytest.fixture
def visit(sites):
    """Starts an episode and returns its visitor."""
    started = []

    def start(task: str, seed: int = 0) -> Visitor:
        visitor = Visitor(sites, task, seed)
        started.append(visitor)
        return visitor

    yield start
    for visitor in started:
        visitor.leave()
