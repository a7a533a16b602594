"""Scoring stored trajectories: what is stored and counted, what is owed again, and when it is hopeless."""

import asyncio

import pytest

from tests.records.builders import CRASHED, step
from tests.records.test_judgement import SCORED
from tests.rewards.cases import answered
from tests.rewards.orm_server import MODEL
from tests.tasks.test_encryption import record
from webgym_cli.agent.prompts.orm_prompt import compute_prompt_digest
from webgym_cli.config.judge import OrmSettings
from webgym_cli.config.load import load
from webgym_cli.errors import MissingStageError, SettingsError, UsageError, WebGymError
from webgym_cli.loop.scoring import resolve_orm_model
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.rewards.engine import execute_scoring
from webgym_cli.rewards.orm.scorer import OrmScorer, require_orm
from webgym_cli.rewards.selection import ScoringQuery, ScoringSelection, plan_scoring
from webgym_cli.store.buffer import append, read_judgements, scan
from webgym_cli.tasks.format import read_task

FIRST, SECOND, THIRD = (f"train-0000-0000{number}" for number in range(3))
YES, NO, NOISE = {"YES": 0.6, "NO": 0.2}, {"YES": 0.1, "NO": 0.3}, {"The": 0.9}


@pytest.fixture
def score(run, server):
    """Score what the run holds, one after the other, and return the summary with the events in `events`."""
    events = []

    async def work(selection=None, ids=None, **settings):
        events.clear()
        values = {"base_url": server.base_url, "model": MODEL, "retries": 0, "concurrency": 1}
        orm = OrmSettings.model_validate({**values, **settings})
        plan = plan_scoring(run, OrmScorer(orm), ScoringQuery(selection=selection, ids=ids))
        return await execute_scoring(plan, run, OrmScorer(orm), events.append)

    work.events = events
    return work


def fill(run, *trajectories):
    for trajectory in trajectories:
        append(run, trajectory)


def stored_scores(run):
    judgements = read_judgements(run, Split.TRAIN, 0)
    return {name: [(round(one.probability, 4), one.success) for one in of_one] for name, of_one in judgements.items()}


async def test_each_probability_is_stored_beside_the_decision_and_counted(run, server, score):
    fill(run, answered(0), answered(1), answered(2, outcome=SCORED))
    server.answers.extend([YES, NO, YES])
    summary = await score()
    assert stored_scores(run) == {FIRST: [(0.75, True)], SECOND: [(0.25, False)], THIRD: [(0.75, True)]}
    outcomes = [trajectory.outcome for trajectory in scan(run, Split.TRAIN, 0)]
    assert [outcome.reward for outcome in outcomes] == [1.0, 0.0, 0.0]
    assert [score.source for score in outcomes[2].scores] == ["environment", "orm"]
    known = {"scored": 3, "asked": 3, "successes": 2, "unreadable": 0, "cut": 0, "model": MODEL, "threshold": 0.5}
    assert summary.items() >= known.items()
    assert summary["mean_probability"] == pytest.approx((0.75 + 0.25 + 0.75) / 3, abs=1e-4)
    assert summary["agreement_with_environment"] == {"both": 1, "same": 0, "rate": 0.0}
    assert [(event["event"], event["done"], event["total"]) for event in score.events] == [
        ("scored", number, 3) for number in (1, 2, 3)
    ]
    assert "scored 3: 2 solved from 0.5 on" in OrmScorer.format_summary(summary)


@pytest.mark.parametrize(("version", "line"), [("webrl", "# Seen. do(it)"), ("vanilla", "click")])
async def test_the_model_reads_the_steps_as_the_action_set_describes_them(run, server, score, version, line):
    """WebRL's reward models were trained on responses, others read actions."""
    taken = step(0, response="# Seen. do(it)")
    fill(run, answered(0, steps=(taken,)).model_copy(update={"prompt": PromptSpec(version=version)}))
    await score()
    assert server.prompts[0].partition("Action History:\n")[2].startswith(line)


async def test_what_the_model_has_scored_is_not_asked_again(run, server, score):
    fill(run, answered(0))
    await score()
    for selection in (None, ScoringSelection.ALL):
        assert (await score(selection))["scored"] == 0
    assert (len(server.requests), stored_scores(run)) == (1, {FIRST: [(0.75, True)]})


async def test_a_model_that_was_trained_again_in_its_folder_scores_again(run, server, score, tmp_path):
    server.models = (name := str(tmp_path / "orm"),)
    (tmp_path / "orm").mkdir()
    fill(run, answered(0))
    await score(model=name)
    assert (await score(ScoringSelection.ALL, model=name))["scored"] == 0
    await asyncio.sleep(0.05)  # the file system's clock has steps of up to 10 ms
    (tmp_path / "new").mkdir()
    (tmp_path / "orm").rmdir()
    (tmp_path / "new").rename(name)
    assert (await score(model=name))["scored"] == 0, "--all scores again"
    server.answers.append(NO)
    assert (await score(ScoringSelection.ALL, model=name, threshold=0.7))["asked"] == 1
    assert stored_scores(run) == {FIRST: [(0.75, True), (0.25, False)]}


async def test_what_can_not_be_read_is_no_success_and_is_asked_again(run, server, score):
    fill(run, answered(0), answered(1))
    server.answers.extend([NOISE, YES])
    summary = await score()
    assert summary.items() >= {"scored": 1, "unreadable": 1, "successes": 1, "success_rate": 1.0}.items()
    assert stored_scores(run) == {SECOND: [(0.75, True)]}
    assert next(iter(scan(run, Split.TRAIN, 0))).outcome.reward is None
    assert "neither YES nor NO" in score.events[0]["failure_detail"]
    assert "1 without an answer" in OrmScorer.format_summary(summary)
    assert (await score())["scored"] == 1
    assert stored_scores(run)[FIRST] == [(0.75, True)]


async def test_another_threshold_decides_anew_without_asking(run, server, score):
    fill(run, answered(0), answered(1))
    server.answers.extend([YES, NO])
    await score()
    summary = await score(threshold=0.8)
    assert (summary["scored"], summary["asked"], len(server.requests)) == (1, 0, 2)
    assert stored_scores(run) == {FIRST: [(0.75, True), (0.75, False)], SECOND: [(0.25, False)]}
    assert [trajectory.outcome.reward for trajectory in scan(run, Split.TRAIN, 0)] == [0.0, 0.0]
    assert "1 decided anew" in OrmScorer.format_summary(summary)


async def test_another_model_scores_only_what_is_asked_for(run, server, score):
    server.models = (MODEL, "another")
    fill(run, answered(0), answered(1))
    await score(ids=(FIRST,))
    assert (await score(model="another"))["scored"] == 1
    assert (await score(ids=(FIRST,), model="another"))["scored"] == 1
    assert {name: len(result) for name, result in stored_scores(run).items()} == {FIRST: 2, SECOND: 1}


async def test_a_failure_an_empty_episode_and_an_encrypted_task_are_not_scored(run, score, server):
    encrypted = read_task({"task_name": "comp", **record()})
    fill(run, answered(0, outcome=CRASHED), answered(1, steps=()), answered(2, task=encrypted))
    plan = plan_scoring(run, OrmScorer(OrmSettings(model=MODEL)), ScoringQuery())
    assert plan.skipped == {"infrastructure_failure": 1, "no_steps": 1, "encrypted_task": 1}
    assert (await score())["scored"] == 0
    assert server.tokenized == 0


async def test_a_prompt_that_was_cut_is_counted_and_several_at_once_score_each_once(run, server, score):
    fill(run, answered(0, instruction="Buy.", answer=" ".join(["word"] * 900)))
    summary = await score(max_tokens=400)
    assert (summary["cut"], score.events[0]["prompt_tokens"] <= 400) == (1, True)
    assert score.events[0]["cut_tokens"] > 0
    fill(run, *(answered(number) for number in range(1, 11)))
    assert (await score(concurrency=4))["scored"] == 10
    assert {len(item) for item in stored_scores(run).values()} == {1}


async def test_a_model_that_never_answers_ends_it_with_a_hint(run, server, score):
    fill(run, answered(0), answered(1))
    server.usual = NOISE
    with pytest.raises(WebGymError, match="2 answers in a row can't be used: neither YES nor NO") as error:
        await score()
    assert "orm.model" in error.value.hint
    assert stored_scores(run) == {}


def test_what_is_not_there_is_named(run):
    scorer = OrmScorer(OrmSettings(model=MODEL))
    with pytest.raises(MissingStageError):
        plan_scoring(run, scorer, ScoringQuery())
    fill(run, answered(0))
    with pytest.raises(UsageError, match="nosuch"):
        plan_scoring(run, scorer, ScoringQuery(ids=("nosuch",)))
    with pytest.raises(SettingsError, match="no model to ask"):
        require_orm(OrmSettings())


def test_a_reward_model_that_was_trained_again_is_another_model(tmp_path):
    link, digests = tmp_path / "model.pt", []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        by_link, by_name = (resolve_orm_model(load(overrides=[f"orm.model={at}"])) for at in (link, tmp_path / name))
        digests.append(compute_prompt_digest(by_link.orm))
        assert digests[-1] == compute_prompt_digest(by_name.orm)
    assert len(set(digests)) == 2
    served = load(overrides=[f"orm.model={link}", "orm.base_url=http://127.0.0.1:1/v1"])
    assert resolve_orm_model(served) == served, "the name of a model at a server is no path"
