"""`webgym score` as people meet it, against a server of log-probabilities over real HTTP."""

import asyncio
import json
import sys
from functools import partial

import pytest

from tests import forked
from tests.cli.runs import model
from tests.prepare.buffer import fill
from tests.records.builders import new_run
from tests.records.test_judgement import by_orm
from tests.rewards.cases import answered, web_task
from tests.rewards.orm_server import MODEL, OrmServer
from webgym_cli.cli.commands.episode_text import episode_text
from webgym_cli.inspect.page import EpisodeView, render_episode_page
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
def unscored(run):
    """A run with two episodes that nobody has judged."""
    append(run, answered(0))
    append(run, answered(1))
    return run


@pytest.fixture
def webgym(tmp_path):
    return partial(asyncio.to_thread, forked.webgym_values, cwd=tmp_path, WEBGYM_ORM__RETRIES="0")


def probabilities(run):
    read = read_judgements(run, Split.TRAIN, 0).items()
    return {name: [round(one.probability, 4) for one in judgements] for name, judgements in read}


async def test_a_server_scores_what_has_no_score_once(webgym, unscored, server):
    server.answers.extend([{"YES": 0.6, "NO": 0.2}, {"YES": 0.1, "NO": 0.3}])
    code, events, result = await webgym("score", unscored.root, "--orm", server.base_url, "-s", "orm.concurrency=1")
    assert (code, probabilities(unscored)) == (0, {FIRST: [0.75], SECOND: [0.25]})
    assert [event["event"] for event in events] == ["plan", "scored", "scored", "score"]
    assert (events[0]["model"], events[-1]["successes"]) == (MODEL, 1)
    assert "scored 2: 1 solved" in result and f"next: webgym inspect-buffer {unscored.root}" in result
    assert [trajectory.outcome.reward for trajectory in scan(unscored, Split.TRAIN, 0)] == [1.0, 0.0]
    code, events, _ = await webgym("score", unscored.root)
    assert (code, events[-1]["scored"], len(server.requests)) == (0, 0, 2)
    code, (shown,), _ = await webgym("show", unscored.root, FIRST, "--json")
    (judgement,) = shown["judgements"]
    assert (judgement["source"], judgement["probability"]) == ("orm", pytest.approx(0.75))


async def test_ids_can_be_piped_in_and_what_could_not_be_read_is_next(webgym, unscored, server):
    server.answers.extend([{"The": 0.9}])
    code, events, result = await webgym("score", unscored.root, "--orm", server.base_url, "-s", "orm.concurrency=1")
    assert (code, events[-1]["unreadable"], probabilities(unscored)) == (0, 1, {SECOND: [0.75]})
    assert f"next: webgym score {unscored.root}" in result
    code, _, _ = await webgym("score", unscored.root, "-", stdin=json.dumps({"id": FIRST}) + "\n")
    assert (code, probabilities(unscored)) == (0, {FIRST: [0.75], SECOND: [0.75]})


async def test_a_model_that_is_down_is_1_and_resume_goes_on(webgym, unscored, server):
    server.answers.extend([503, 503])
    code, _, result = await webgym("score", unscored.root, "--orm", server.base_url, "-s", "orm.concurrency=1")
    assert (code, probabilities(unscored)) == (1, {})
    assert "next: check orm.base_url" in result
    code, events, result = await webgym("resume", unscored.root)
    assert (code, events[-1]["scored"]) == (0, 2)
    assert "resuming `webgym score`" in result


async def test_a_folder_is_named_by_its_path_in_the_plan_and_refused_if_it_holds_no_model(webgym, unscored, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, result = await webgym("score", unscored.root, "--orm", "empty", "-s", f"venvs.serve={sys.executable}")
    assert code == 2
    assert str(tmp_path / "empty") in result and "Traceback" not in result
    model(tmp_path / "orm")
    code, (plan,), _ = await webgym("score", unscored.root, "--orm", "orm", "-n")
    assert (code, plan["model"], plan["to_ask"]) == (0, str(tmp_path / "orm"), 2)


def test_an_episode_is_shown_with_its_probability(tmp_path):
    orm = by_orm(0.25, trajectory=FIRST, success=False)
    episode_view = EpisodeView(with_verdict(answered(0), orm), (orm,))
    assert "P(YES)    0.2500" in episode_text(episode_view).plain
    assert "P(YES) 0.2500 by an-orm" in render_episode_page(episode_view, ScreenshotStore(tmp_path)).decode()


CHECKSUMS = ("webarena_verified_evaluator_checksum", "webarena_verified_data_checksum")
VERIFIED = {"webarena_verified_version": "1.2.3"} | dict.fromkeys(CHECKSUMS, "0" * 64)
SAYS_NO = "AssertionError: no rule"
# Result of webarena-verified (text: as it is), the reward that is stored, and why there is none.
RESULTS = [
    ({"status": "success", "score": 1.0}, 1.0, ""),
    ({"status": "failure", "score": 0.0}, 0.0, ""),
    ({"status": "error", "score": 0.0, "error_msg": "no trace"}, None, "error: no trace"),
    ({"status": "error", "score": 0.0, "evaluators_results": [{"error_msg": SAYS_NO}]}, None, f"error: {SAYS_NO}"),
    ({"status": "success", "score": 0.0}, None, "success with the score 0"),
    ({"status": "partial_match", "score": 0.5}, None, "eval_result.json is no result of webarena-verified"),
    ("{", None, "eval_result.json is no result of webarena-verified"),
    (None, None, "eval_result.json is missing"),
]


@pytest.fixture
def verified(run, tmp_path):
    """An export that webarena-verified scored: the n-th result is that of the n-th episode."""
    task = web_task(id="44", extra={"verified": {"environments": {}}})
    run.har.mkdir()
    for number in range(len(RESULTS)):
        stored = answered(number, task=task)
        fill(run, stored)
        (run.har / f"{stored.id}.har").write_text("{}")
    forked.webgym("export-sharegpt", run.root, "--format", "webarena-verified", "-o", "out", cwd=tmp_path)
    for number, (result, *_) in enumerate(RESULTS, 1):
        text = json.dumps(result | VERIFIED) if isinstance(result, dict) else result
        if text is not None:
            (tmp_path / "out" / str(number) / "44" / "eval_result.json").write_text(text)
    return tmp_path / "out"


async def test_verdicts_of_webarena_verified_become_those_of_a_check(webgym, run, verified):
    code, events, result = await webgym("score", run.root, "--verdicts", "out")
    rewards = [one.outcome.reward for one in scan(run, Split.TRAIN, 0)]
    assert (code, rewards) == (0, [reward for _, reward, _ in RESULTS])
    scored = [event for event in events if event["event"] == "scored"]
    assert [event["failure_detail"] or "" for event in scored] == [reason for *_, reason in RESULTS]
    assert (events[-1]["scored"], events[-1]["successes"], sum(events[-1]["check_failed"].values())) == (2, 1, 6)
    assert f"1 without a score: error: {SAYS_NO}" in result
    sql = "SELECT judged_by, judge_model, reward FROM trajectories WHERE judged_by IS NOT NULL ORDER BY id"
    _, rows, _ = await webgym("inspect-buffer", run.root, "--sql", sql, "--json")
    assert [tuple(row.values()) for row in rows] == [("check", "webarena-verified 1.2.3", value) for value in (1, 0)]
    _, (plan,), _ = await webgym("judge", run.root, "-s", "judge.base_url=scripted", "-n")
    assert (plan["owed"], plan["skipped_scored_by_environment"]) == (6, 2)


async def test_only_new_verdicts_of_the_same_episodes_are_read(webgym, run, verified, tmp_path):
    await webgym("score", run.root, "--verdicts", "out")
    second = verified / "2" / "44" / "eval_result.json"
    second.write_text(json.dumps({"status": "success", "score": 1} | VERIFIED))
    third = second.read_text().replace("1.2.3", "1.3.0")
    (verified / "3" / "44" / "eval_result.json").write_text(third)
    _, (plan,), _ = await webgym("score", run.root, "--verdicts", "out", "-n")
    assert (plan["owed"], plan["skipped_scored_with_this_check"]) == (7, 1)
    await webgym("score", run.root, "--verdicts", "out")
    assert [one.outcome.reward for one in scan(run, Split.TRAIN, 0)] == [1.0, 1.0, 1.0] + [None] * 5
    # the same ids in another run are other episodes
    other = new_run(tmp_path / "other")
    append(other, answered(0).model_copy(update={"started_at": "2026-01-01T00:00:00+00:00"}))
    _, (plan,), _ = await webgym("score", other.root, "--verdicts", "out", "-n")
    assert (plan["owed"], plan["skipped_not_exported"]) == (0, 1)
    code, _, result = await webgym("score", run.root, "--verdicts", tmp_path / "run")
    assert (code, "no export for an official scorer" in result) == (2, True)
