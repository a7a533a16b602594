"""A scripted judge behind real HTTP, and judges that ask it."""

import pytest

from tests.rewards.cases import PICTURES, judge_settings
from tests.rewards.scripted_judge import ScriptedJudgeServer
from webgym_cli.rewards.judge.judge import Judge


@pytest.fixture
async def server():
    async with ScriptedJudgeServer() as running:
        yield running


@pytest.fixture
async def judge(server):
    """Judge a trajectory by the server, under these settings."""
    judges = []

    async def ask(trajectory, images=PICTURES.__getitem__, **settings):
        judges.append(Judge(judge_settings(server, **settings), images))
        return await judges[-1].judge(trajectory)

    yield ask
    for item in judges:
        await item.close()
