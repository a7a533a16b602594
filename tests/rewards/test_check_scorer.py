"""Stored episodes are scored again by their checks: which, with what result, and what stays as it was."""

import json
from contextlib import nullcontext
from unittest import mock

import pytest

from tests.records.builders import CRASHED, new_run, trajectory
from tests.rewards.cases import answered
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.config.load import load
from webgym_cli.errors import WebGymError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import FinalState, Outcome, Score
from webgym_cli.rewards.check_scorer import CheckScorer
from webgym_cli.rewards.engine import execute_scoring
from webgym_cli.rewards.judge.scorer import JudgeScorer
from webgym_cli.rewards.selection import ScoringQuery, ScoringSelection, ScoringSkip, plan_scoring
from webgym_cli.scoring import check
from webgym_cli.scoring.check import CHECKS
from webgym_cli.store.buffer import append, scan
from webgym_cli.store.index.query import open_index

OLD = "0" * 64


@pytest.fixture
def run(run):
    """A run with an episode of every kind; the check now gives half of what `size` says."""
    with mock.patch.dict(CHECKS.registered, clear=True):

        @check("size")
        def size(size, context):
            if size == "page":
                return context.page.title()
            return {"reward": size / 2, "size": size}

        old = Score(source="check", value=1.0, detail="size", digest=OLD, extras={"size": 9.0})
        new = Score(source="check", value=1.0, detail="size", digest=size.digest)
        failed = Outcome(failure=FailureKind.ENVIRONMENT_ERROR, failure_detail="the check size failed")
        kinds = {
            "old": (2, Outcome(reward=1.0, scores=(old,))),
            "new": (1, Outcome(reward=1.0, scores=(new,))),
            "failed": (1, failed),
            "page": ("page", Outcome(reward=1.0, scores=(old,))),
            "crashed": (1, CRASHED),
        }
        for number, (name, (given, outcome)) in enumerate(kinds.items()):
            task = Task(
                id=name, site={"old": "desk", "failed": "own"}.get(name, ""), check="size", extra={"size": given}
            )
            append(run, trajectory(number, id=name, task=task, outcome=outcome, final=FinalState()))
        append(run, trajectory(7, id="reset", task=task, outcome=failed))  # it failed before its end
        append(run, trajectory(8, id="unchecked"))
        yield run


async def score(run, **query):
    sites = {"desk": {"url": "http://desk/"}, "own": {"url": "http://own/", "isolation": "tenant"}}
    scorer = CheckScorer(load(overrides=[f"sites={json.dumps(sites)}"]))
    plan = plan_scoring(run, scorer, ScoringQuery(**query))
    with nullcontext(scorer):
        return plan, await execute_scoring(plan, run, scorer, lambda event: None)


async def test_what_the_check_as_it_is_now_has_not_scored_is_scored(run):
    plan, summary = await score(run)
    assert [one.id for one in plan.pending] == ["old", "failed", "page"]
    assert plan.skipped == {ScoringSkip.SAME_CHECK: 1, ScoringSkip.INFRASTRUCTURE: 2, ScoringSkip.NO_CHECK: 1}
    assert (summary["scored"], summary["successes"], summary["needs_page"]) == (2, 1, ["page"])
    assert summary["shared_sites"] == ["desk"]
    assert all(name in CheckScorer.format_summary(summary) for name in ("page", "desk"))
    outcomes = {one.id: one.outcome for one in scan(run, Split.TRAIN, 0)}
    assert (outcomes["old"].reward, outcomes["old"].extras) == (1.0, {"size": 2.0})
    assert (outcomes["failed"].reward, outcomes["failed"].failure) == (0.5, None)
    assert outcomes["page"].reward == 1.0 and outcomes["crashed"].reward is None
    with open_index(run) as index:
        columns = "id, reward, failure, success, scored_by_environment, element_at(reward_extra, 'size') AS size"
        rows = {row["id"]: row for row in index.rows(f"SELECT {columns} FROM trajectories")}
    for name in ("old", "failed", "page", "new"):
        reward, failure, success = outcomes[name].reward, outcomes[name].failure, outcomes[name].success
        assert (rows[name]["reward"], rows[name]["failure"], rows[name]["success"]) == (reward, failure, success)
        assert rows[name]["scored_by_environment"]
    assert (rows["old"]["size"], rows["failed"]["size"]) == ([2.0], [1.0])
    again, _ = await score(run)
    assert [one.id for one in again.pending] == ["page"]
    everything, _ = await score(run, selection=ScoringSelection.ALL)
    assert [one.id for one in everything.pending] == ["old", "new", "failed", "page"]


async def test_an_episode_whose_attempts_all_had_a_failing_check_is_scored_once(run):
    """Each failing check is retried: an episode counted three times in the success rate, its neighbours once."""
    failed = Outcome(failure=FailureKind.ENVIRONMENT_ERROR, failure_detail="the check size failed")
    task = Task(id="again", check="size", extra={"size": 2})
    for attempt, outcome in enumerate((failed, failed, failed, CRASHED)):
        facts = {"id": f"again.{attempt}", "episode": "again", "attempt": attempt, "task": task}
        append(run, trajectory(9, outcome=outcome, final=FinalState(), **facts))
    plan, _ = await score(run)
    assert [one.id for one in plan.pending if one.id.startswith("again")] == ["again.2"]
    assert plan.skipped[ScoringSkip.REPLACED] == 2
    again, _ = await score(run)
    assert [one.id for one in again.pending] == ["page"]
    named, _ = await score(run, ids=("again.1",))
    assert [one.id for one in named.pending] == ["again.1"]


async def test_a_check_that_fails_changes_nothing(run):
    with mock.patch.dict(CHECKS.registered, clear=True):
        check("size")(lambda: 1 / 0)
        with pytest.raises(WebGymError, match="ZeroDivisionError"):
            await score(run)
    assert {one.id: one.outcome.reward for one in scan(run, Split.TRAIN, 0)}["old"] == 1.0


def test_an_episode_that_its_check_scored_is_judged_only_if_the_settings_say_both(tmp_path):
    run_dir = new_run(tmp_path / "run")
    scored = Score(source="check", value=1.0, detail="size")
    append(run_dir, answered(0, id="checked", outcome=Outcome(reward=1.0, scores=(scored,), answer="x")))
    append(run_dir, answered(1, id="open"))

    def owed(**settings):
        judge = JudgeScorer(JudgeSettings(base_url="http://127.0.0.1:1/v1", **settings), run_dir)
        return {one.id: one.environment for one in plan_scoring(run_dir, judge, ScoringQuery()).pending}

    assert owed() == {"open": None}
    assert owed(with_checks=True) == {"checked": True, "open": None}
