"""Whose verdict an outcome reward model is trained on, and which trajectories are left out."""

import pytest

from tests.records.builders import CRASHED, SOLVED, UNSOLVED, new_run, trajectory
from tests.records.test_judgement import SCORED, WEB, by_orm, episode, judgement
from webgym_cli.config.load import load
from webgym_cli.errors import MissingStageError, SettingsError, WebGymError
from webgym_cli.prepare.sft.orm import OrmDrop, find_label, plan_orm_dataset, require_labels
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, append_judgement

TRUSTED = ("environment", "judge")
BY_ORM = by_orm(0.9, trajectory="train-0000-00000", success=True)


def verdict(value, reply, sources=TRUSTED):
    label = find_label(value, reply, sources)
    return label if isinstance(label, OrmDrop) else (label.done, label.source)


def test_the_environment_goes_before_the_judge_and_the_model_itself_is_not_asked():
    assert verdict(episode(SCORED), [judgement()]) == (False, "environment")
    assert verdict(episode(SCORED), [judgement()], ("judge", "environment")) == (True, "judge")
    assert verdict(episode(), [judgement(success=False), BY_ORM]) == (False, "judge")
    assert verdict(episode(), [BY_ORM]) is OrmDrop.NO_VERDICT
    assert verdict(episode(), [BY_ORM], ("judge", "orm")) == (True, "orm")


def test_the_newest_judgement_counts_and_one_that_failed_says_nothing():
    failed = judgement(failure=FailureKind.JUDGE_FAILED, failure_detail="down")
    assert verdict(episode(), [judgement(), judgement(success=False)]) == (False, "judge")
    assert verdict(episode(), [judgement(), failed]) == (True, "judge")
    assert verdict(episode(), [failed]) is OrmDrop.NO_VERDICT
    assert verdict(episode(), [judgement(), judgement(failure=FailureKind.SITE_BLOCKED)]) is OrmDrop.NO_VERDICT
    down = failed.model_copy(update={"unavailable": True})
    assert verdict(episode(), [judgement(success=False), down]) == (False, "judge")


def test_what_broke_and_what_did_nothing_is_left_out():
    assert verdict(trajectory(outcome=CRASHED), [judgement()]) is OrmDrop.INFRASTRUCTURE
    assert verdict(trajectory(steps=0), []) is OrmDrop.NO_STEPS


@pytest.fixture
def run(run):
    """Six episodes that were solved, two that were not, one that broke and one that nobody judged; one of a test."""
    for number in range(6):
        append(run, trajectory(number, iteration=number % 2, outcome=SOLVED))
    append(run, trajectory(6, outcome=UNSOLVED))
    append(run, trajectory(7, task=WEB, outcome=SCORED))
    append(run, trajectory(8, outcome=CRASHED))
    append(run, trajectory(9, task=WEB, outcome=episode().outcome))
    append(run, trajectory(0, split=Split.TEST, outcome=SOLVED))
    return run


def test_both_kinds_are_as_many_and_the_seed_decides_which(run):
    plan = plan_orm_dataset(run, load())
    assert [(one.done, one.source) for one in plan.chosen if not one.done] == [(False, "environment")] * 2
    assert (plan.to_json()["yes"], len(plan.chosen), plan.read) == (2, 4, (0, 1))
    counts = {"infrastructure_failure": 1, "no_steps": 0, "no_verdict": 1, "left_out_for_balance": 4, "too_long": 0}
    assert plan.dropped == counts
    assert plan_orm_dataset(run, load()).chosen == plan.chosen
    others = [plan_orm_dataset(run, load(overrides=[f"seed={seed}"])).chosen for seed in range(1, 6)]
    assert any(chosen != plan.chosen for chosen in others)


def test_the_newest_iterations_are_taken_and_what_was_judged_since(run):
    newest = plan_orm_dataset(run, load(overrides=["algorithm_config.last_n_iterations=1"]))
    assert (newest.read, newest.dropped["left_out_for_balance"]) == ((1,), 3)
    append_judgement(run, Split.TRAIN, 0, judgement(trajectory="train-0000-00009"))
    assert plan_orm_dataset(run, load()).dropped["no_verdict"] == 0


def test_the_digest_tells_what_would_be_written(run):
    plan, settings = plan_orm_dataset(run, load()), load()
    assert plan.digest(settings) == plan_orm_dataset(run, load()).digest(load())
    for other in ("algorithm_config.cutoff_len=99", "orm.system_prompt=Judge.", "algorithm_config.do_eval=true"):
        assert plan.digest(load(overrides=[other])) != plan.digest(settings)


@pytest.mark.parametrize(
    ("given", "reason", "command"),
    [({}, "left_out_for_balance", "rollout"), ({"task": WEB, "outcome": episode().outcome}, "no_verdict", "judge")],
    ids=["one kind alone", "nobody's verdict"],
)
def test_what_no_label_or_one_kind_has_is_refused_with_what_to_do(tmp_path, given, reason, command):
    run_dir = new_run(tmp_path / "run")
    with pytest.raises(MissingStageError, match="no training trajectories"):
        plan_orm_dataset(run_dir, load())
    append(run_dir, trajectory(0, **given))
    with pytest.raises(WebGymError, match=f"1 x {reason}") as error:
        require_labels(plan_orm_dataset(run_dir, load()), run_dir)
    assert error.value.hint.endswith(f"webgym {command} {run_dir.root}")


def test_a_model_that_thinks_first_is_refused(run):
    thinking = load(overrides=["policy_config.base_model=Qwen/Qwen3-VL-8B-Thinking"])
    with pytest.raises(SettingsError, match="answers with its first token"):
        plan_orm_dataset(run, thinking)
