import pytest

from tests.rewards.orm_server import OrmServer


@pytest.fixture
async def server():
    async with OrmServer() as running:
        yield running
