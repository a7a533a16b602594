import pytest
import pytest_asyncio

from tests.environments.fixture_sites.visiting import Visitor
from webgym_cli.environments.fixture_sites.environment import SiteServer


@pytest_asyncio.fixture(scope="session")
async def sites():
    """Both sites."""
    async with SiteServer() as server:
        yield server


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
