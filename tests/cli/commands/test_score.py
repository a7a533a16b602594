"""`webgym score` as people meet it, against a server of log-probabilities over real HTTP."""

import asyncio
import json
import sys

import pytest

from tests import forked
from tests.cli.runs import model
from tests.records.test_judgement import by_orm
from tests.rewards.cases import answered
from tests.rewards.orm_server import MODEL, OrmServer
from webgym_cli.cli.commands.episode_text import episode_text
from webgym_cli.inspect.episode import EpisodeView
from webgym_cli.inspect.page import render_episode_page
from webgym_cli.records.judgement import with_verdict
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, read_judgements, scan
from webgym_cli.store.screenshots import ScreenshotStore

FIRST, SECOND = "train-0000-00000", "train-0000-00001"


@pytest.fixture
async def server():
    async with OrmServer() as running:
        yield running


@pytest.fixture
def run(made_run):
    """A run with two episodes that nobody has judged."""
    append(made_run, answered(0))
    append(made_run, answered(1))
    return made_run


@pytest.fixture
def webgym(tmp_path):
    """Run webgym to its end and return its code, the values on stdout, and stderr."""

    async def call(*arguments, stdin=""):
        retries = {"WEBGYM_ORM__RETRIES": "0"}
        done = await asyncio.to_thread(forked.webgym, *arguments, cwd=tmp_path, code=None, stdin=stdin, **retries)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return call


def probabilities(run):
    return {
        name: [round(one.probability, 4) for one in judgements]
        for name, judgements in read_judgements(run, Split.TRAIN, 0).items()
    }


async def test_a_server_scores_what_has_no_score_once(webgym, run, server):
    server.answers.extend([{"YES": 0.6, "NO": 0.2}, {"YES": 0.1, "NO": 0.3}])
    code, events, result = await webgym("score", run.root, "--orm", server.base_url, "-s", "orm.concurrency=1")
    assert (code, probabilities(run)) == (0, {FIRST: [0.75], SECOND: [0.25]})
    assert [event["event"] for event in events] == ["plan", "scored", "scored", "score"]
    assert (events[0]["model"], events[-1]["successes"]) == (MODEL, 1)
    assert "scored 2: 1 solved" in result
    assert f"next: webgym inspect-buffer {run.root}" in result
    assert [trajectory.outcome.reward for trajectory in scan(run, Split.TRAIN, 0)] == [1.0, 0.0]
    code, events, _ = await webgym("score", run.root)
    assert (code, events[-1]["scored"], len(server.requests)) == (0, 0, 2)
    code, (shown,), _ = await webgym("show", run.root, FIRST, "--json")
    assert [(judgement["source"], judgement["probability"]) for judgement in shown["judgements"]] == [
        ("orm", pytest.approx(0.75))
    ]


async def test_ids_can_be_piped_in_and_what_could_not_be_read_is_next(webgym, run, server):
    server.answers.extend([{"The": 0.9}])
    code, events, result = await webgym("score", run.root, "--orm", server.base_url, "-s", "orm.concurrency=1")
    assert (code, events[-1]["unreadable"], probabilities(run)) == (0, 1, {SECOND: [0.75]})
    assert f"next: webgym score {run.root}" in result
    code, _, _ = await webgym("score", run.root, "-", stdin=json.dumps({"id": FIRST}) + "\n")
    assert (code, probabilities(run)) == (0, {FIRST: [0.75], SECOND: [0.75]})


async def test_a_model_that_is_down_is_1_and_resume_goes_on(webgym, run, server):
    server.answers.extend([503, 503])
    code, _, result = await webgym("score", run.root, "--orm", server.base_url, "-s", "orm.concurrency=1")
    assert (code, probabilities(run)) == (1, {})
    assert "next: check orm.base_url" in result
    code, events, result = await webgym("resume", run.root)
    assert (code, events[-1]["scored"]) == (0, 2)
    assert "resuming `webgym score`" in result


async def test_a_folder_that_holds_no_model_is_refused(webgym, run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, result = await webgym("score", run.root, "--orm", "empty", "-s", f"venvs.serve={sys.executable}")
    assert code == 2
    assert str(tmp_path / "empty") in result
    assert "Traceback" not in result


async def test_a_folder_is_named_by_its_path_in_the_plan(webgym, run, tmp_path):
    model(tmp_path / "orm")
    code, (plan,), _ = await webgym("score", run.root, "--orm", "orm", "-n")
    assert (code, plan["model"], plan["to_ask"]) == (0, str(tmp_path / "orm"), 2)


def test_an_episode_is_shown_with_its_probability(tmp_path):
    orm = by_orm(0.25, trajectory=FIRST, success=False)
    episode_view = EpisodeView(with_verdict(answered(0), orm), (orm,))
    assert "P(YES)    0.2500" in episode_text(episode_view).plain
    assert "P(YES) 0.2500 by an-orm" in render_episode_page(episode_view, ScreenshotStore(tmp_path)).decode()
