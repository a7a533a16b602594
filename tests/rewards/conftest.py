"""A scripted judge behind real HTTP, and judges that ask it."""

import pytest

from tests.records.builders import new_run
from tests.rewards.cases import PICTURES, judge_settings
from tests.rewards.scripted_judge import ScriptedJudgeServer
from webgym_cli.rewards.judge.judge import Judge
from webgym_cli.store.screenshots import ScreenshotStore


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """The folder of the screenshots of the tests' episodes."""
    store = ScreenshotStore(tmp_path_factory.mktemp("pictures"))
    for picture in PICTURES.values():
        store.put(picture)
    return store.root


@pytest.fixture
def pictured(tmp_path_factory, pictures):
    """A run with these screenshots."""
    run = new_run(tmp_path_factory.mktemp("pictured"))
    run.screenshots.symlink_to(pictures)
    return run


@pytest.fixture
async def server():
    async with ScriptedJudgeServer() as running:
        yield running


@pytest.fixture
async def judge(server, pictured, monkeypatch):
    """Judge a trajectory by the server, under these settings."""
    judges, get = [], ScreenshotStore.get

    def get_at_once(store, name):  # else the requests of one verdict come in any order
        return PICTURES[name] if store.root == pictured.screenshots else get(store, name)

    monkeypatch.setattr(ScreenshotStore, "get", get_at_once)

    async def ask(trajectory, run=pictured, **settings):
        judges.append(Judge(judge_settings(server, **settings), run))
        return await judges[-1].judge(trajectory)

    yield ask
    for item in judges:
        await item.close()
