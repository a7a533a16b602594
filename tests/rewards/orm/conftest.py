import pytest

from tests.rewards.orm_server import OrmServer


@pytest.fixture
def run(made_run):
    return made_run


@pytest.fixture
async def server():
    async with OrmServer() as running:
        yield running
