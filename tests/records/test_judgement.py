"""What a judgement makes of a trajectory's outcome."""

import pytest
from pydantic import ValidationError

from tests.records.builders import CRASHED, SOLVED, UNSOLVED, trajectory
from tests.tables import each
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import Judgement, effective_verdict, needs_judge, scored_by_environment, with_verdict
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Outcome, Score

ANSWERED = Outcome(stop=Stop.ANSWERED, answer="42")
WEB = Task(id="t", environment="web", start_url="http://a.test/")
SCORED = Outcome(
    reward=0.0, stop=Stop.ANSWERED, answer="42", scores=(Score(source="environment", value=-1.0, detail="wrong"),)
)


def judgement(**changes):
    values = {
        "trajectory": "train-0000-00000",
        "models": {"key_points": "small", "blocking": "small", "verdict": "big"},
        "settings_digest": "0" * 64,
        "judged_at": "2026-01-02T03:04:05.000+00:00",
        **({} if "failure" in changes else {"success": True}),
    }
    return Judgement.model_validate({**values, **changes})


def episode(outcome=ANSWERED, task=WEB):
    return trajectory(outcome=outcome, task=task)


@pytest.mark.parametrize("threshold", [1.0, 0.0, 5.0])
@pytest.mark.parametrize(("success", "reward"), [(True, 1.0), (False, 0.0)])
def test_a_verdict_is_the_reward_whatever_reward_of_a_gateway_s_client_is_a_success(success, reward, threshold):
    before = ANSWERED.model_copy(update={"success_threshold": threshold})
    outcome = with_verdict(episode(before), judgement(success=success)).outcome
    assert (outcome.reward, outcome.success, outcome.answer) == (reward, success, "42")
    assert outcome.scores == (Score(source="judge", value=reward, detail="big"),)


@pytest.mark.parametrize("failure", [FailureKind.JUDGE_FAILED, FailureKind.SITE_BLOCKED])
@pytest.mark.parametrize("before", [ANSWERED, UNSOLVED], ids=["answered", "step limit"])
def test_a_judgement_without_verdict_is_neither_success_nor_failure(before, failure):
    outcome = with_verdict(episode(before), judgement(failure=failure, failure_detail="why")).outcome
    assert (outcome.reward, outcome.success, outcome.failure) == (None, None, failure)
    assert (outcome.failure_detail, outcome.stop, outcome.scores) == ("why", before.stop, ())


def test_a_failure_of_infrastructure_stays_what_it_is():
    broken = episode(CRASHED)
    assert with_verdict(broken, judgement()) is with_verdict(broken, by_orm()) is broken


def test_a_verdict_mends_a_judge_that_failed():
    failed = Outcome(stop=Stop.ANSWERED, answer="42", failure=FailureKind.JUDGE_FAILED, failure_detail="down")
    outcome = with_verdict(episode(failed), judgement()).outcome
    assert (outcome.reward, outcome.failure, outcome.failure_detail) == (1.0, None, "")


@pytest.mark.parametrize(
    "fields", [{"success": True}, {"failure": FailureKind.SITE_BLOCKED}, {"failure": FailureKind.JUDGE_FAILED}], ids=str
)
def test_the_environments_own_reward_stands_whatever_a_judge_says(fields):
    outcome = with_verdict(episode(SCORED), judgement(**fields)).outcome
    assert (outcome.reward, outcome.failure) == (0.0, None)
    judges = tuple(Score(source="judge", value=1.0, detail="big") for _ in range("success" in fields))
    assert outcome.scores == (*SCORED.scores, *judges)


@each(
    ("outcome", "task", "scored", "needed"),
    [
        (ANSWERED, WEB, False, True),
        (UNSOLVED, WEB, False, True),
        (SCORED, WEB, True, False),
        (SCORED.model_copy(update={"reward": None}), WEB, False, True),
        (SOLVED, WEB, True, False),
        (SOLVED.model_copy(update={"reward": None}), WEB, False, True),
        (UNSOLVED, Task(id="t"), True, False),
        (CRASHED, WEB, False, False),
        (Outcome(stop=Stop.ANSWERED, failure=FailureKind.JUDGE_FAILED), WEB, False, True),
    ],
)
def test_whose_the_reward_is(outcome, task, scored, needed):
    result = episode(outcome, task)
    assert (scored_by_environment(result), needs_judge(result)) == (scored, needed)


@pytest.mark.parametrize(
    "changes", [{"success": None}, {"failure": FailureKind.JUDGE_FAILED, "success": True}], ids=["neither", "both"]
)
def test_a_judgement_is_a_verdict_or_a_failure(changes):
    with pytest.raises(ValidationError, match="success is None with a failure"):
        judgement(**changes)


def test_a_judgement_survives_its_line():
    verdict = judgement(failure=FailureKind.JUDGE_FAILED, failure_detail="é", unavailable=True)
    assert Judgement.model_validate_json(verdict.to_line()) == verdict
    assert "\n" not in verdict.to_line()


def by_orm(probability=0.75, **changes):
    values = {"source": "orm", "models": {"verdict": "an-orm"}, "probability": probability, "success": True}
    return judgement(**{**values, **changes})


FAILED_JUDGE = Outcome(stop=Stop.ANSWERED, answer="42", failure=FailureKind.JUDGE_FAILED, failure_detail="down")


@pytest.mark.parametrize("before", [ANSWERED, FAILED_JUDGE], ids=["not judged", "judge failed"])
@pytest.mark.parametrize(("success", "reward"), [(True, 1.0), (False, 0.0)])
def test_an_orm_decides_where_nobody_else_did(before, success, reward):
    outcome = with_verdict(episode(before), by_orm(0.4, success=success)).outcome
    assert (outcome.reward, outcome.failure, outcome.failure_detail) == (reward, None, "")
    assert outcome.scores == (Score(source="orm", value=0.4, detail="an-orm"),)


@pytest.mark.parametrize("before", [SCORED, UNSOLVED], ids=["environment", "reward of another source"])
def test_an_orm_stands_beside_a_reward_that_is_known(before):
    outcome = with_verdict(episode(before), by_orm(0.9)).outcome
    assert (outcome.reward, outcome.success) == (before.reward, False)
    assert outcome.scores == (*before.scores, Score(source="orm", value=0.9, detail="an-orm"))


@each(
    ("values", "expected"),
    [
        ([], None),
        (["orm 1", "orm 2"], "orm 2"),
        (["judge 1", "orm 1"], "judge 1"),
        (["judge 1", "judge 2", "orm 1"], "judge 2"),
        (["orm 1", "failed"], "orm 1"),
        (["failed"], "failed"),
        (["failed", "down"], "failed"),
        (["orm 1", "blocked"], "blocked"),
        (["judge 1", "failed"], "judge 1"),
        (["judge 1", "judge 2", "failed", "down"], "judge 2"),
        (["failed", "judge 1"], "judge 1"),
        (["blocked", "failed"], "blocked"),
        (["judge 1", "blocked"], "blocked"),
        (["judge 1", "orm 1", "failed"], "judge 1"),
    ],
)
def test_the_judge_counts_before_the_orm_and_the_newer_before_the_older(values, expected):
    fields = {
        "orm 1": by_orm(0.1, success=False),
        "orm 2": by_orm(0.2, success=False),
        "judge 1": judgement(),
        "judge 2": judgement(success=False),
        "failed": judgement(failure=FailureKind.JUDGE_FAILED),
        "down": judgement(failure=FailureKind.JUDGE_FAILED, unavailable=True),
        "blocked": judgement(failure=FailureKind.SITE_BLOCKED),
    }
    assert effective_verdict([fields[name] for name in values]) == (fields[expected] if expected else None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"probability": 0.5},
        {"source": "orm"},
        {"source": "orm", "probability": 1.5},
        {"source": "orm", "probability": 0.5, "failure": FailureKind.JUDGE_FAILED},
    ],
    ids=["a judge's", "none", "no probability", "it says nothing rather than that it failed"],
)
def test_a_probability_is_an_orms(wrong):
    with pytest.raises(ValidationError):
        judgement(**wrong)
