"""Phases that an outcome reward model scores: over real HTTP, each episode once, whatever comes between."""

import pytest

from tests.loop.curriculum_stages import Killed, Told, ran, settings_in
from tests.rewards.orm_server import MODEL, OrmServer
from webgym_cli.errors import WebGymError
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import read_judgements
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import read_events


@pytest.fixture
async def server():
    async with OrmServer() as running:
        running.usual = {"YES": 0.3, "NO": 0.5}  # nothing is solved, and nothing is hopeless
        yield running


@pytest.fixture
def settings(server, tmp_path):
    result = ("curriculum.score=orm", f"orm.base_url={server.base_url}", f"orm.model={MODEL}", "judge.base_url=")
    return settings_in(tmp_path, *result, "orm.retries=0", "orm.concurrency=1")


def scored(run, iteration):
    """The probabilities of an iteration's episodes, each with how often it was scored."""
    judgements = read_judgements(run, Split.TRAIN, iteration)
    return [(round(judgements[0].probability, 3), len(judgements)) for judgements in judgements.values()]


async def test_what_nobody_scores_else_gets_its_probability_and_weighs_the_new_tasks(run, settings):
    await ran(run, settings)
    assert not any(call[0] == "judge" for call in Told.calls)
    assert scored(run.survey, 0) == [(0.375, 1)] * 4
    assert [scored(run, number) for number in range(2)] == [[(0.375, 1)] * 3] * 2
    first, second = read_events(run, "generate")
    assert (first["critic"], second["critic"]) == ("orm", "orm")
    assert [event["scored"] for event in read_events(run, "phase")] == [3, 3]


async def test_a_model_that_went_away_is_asked_only_for_the_rest(run, settings, server):
    server.answers.extend([server.usual] * 2 + [500] * 20)
    with pytest.raises(WebGymError, match="can't be used"):
        await ran(run, settings)
    assert scored(run.survey, 0) == [(0.375, 1)] * 2
    server.answers.clear()
    await ran(run, settings)
    assert scored(run.survey, 0) == [(0.375, 1)] * 4
    assert version(run) == 2


async def test_where_all_is_scored_nothing_is_scored_again(run, settings, server):
    await ran(run, settings)
    count = len(list(read_events(run, "score")))
    more = settings.model_copy(update={"curriculum": settings.curriculum.model_copy(update={"phases": 3})})
    Told.dies = "prepare 2"
    with pytest.raises(Killed, match="prepare 2"):
        await ran(run, more)
    result = len(server.requests)
    await ran(run, more)
    assert len(server.requests) == result
    assert len(list(read_events(run, "score"))) == count + 1
