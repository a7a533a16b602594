from functools import partial

import pytest

from tests import forked
from tests.agent.policy_host import Host
from tests.environments.webarena.webarena_mail import MailServer
from tests.executable import needs_chromium
from tests.rewards.scripted_judge import ScriptedJudgeServer


@pytest.fixture
def webgym(tmp_path):
    return partial(forked.webgym, cwd=tmp_path)


@pytest.fixture(scope="session")
def chromium():
    needs_chromium()


@pytest.fixture
async def mail():
    async with MailServer() as server:
        yield server


@pytest.fixture
async def server():
    async with ScriptedJudgeServer() as running:
        yield running


@pytest.fixture
async def policy():
    """A policy that ends each episode in its first turn: `policy.content` is its answer."""
    host = Host(content='exit(message="done")')
    await host.start()
    yield host
    await host.stop()
