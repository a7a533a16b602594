"""Which tasks of a run new ones are made of."""

import pytest

from tests.curriculum.generating import FAILED, episode, failed_run, task
from tests.records.builders import CRASHED, SOLVED, UNSOLVED, new_run, trajectory
from tests.records.test_judgement import by_orm, judgement
from webgym_cli.config.load import load
from webgym_cli.curriculum.plan import plan_generation
from webgym_cli.errors import MissingStageError, SettingsError, UsageError
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Outcome
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.index.query import open_index

UNKNOWN = Outcome(stop=Stop.ANSWERED, answer="x")


@pytest.fixture
def run(tmp_path):
    return failed_run(tmp_path)


def planned(run, *overrides, has_critic=False):
    with open_index(run) as index:
        return plan_generation(run, load(overrides=overrides, run_config=run.config), index, has_critic=has_critic)


def seeds(plan):
    return {group.site: sorted(seed.instruction for seed in group.seeds) for group in plan.groups}


def test_failed_tasks_are_seeds_by_site(run):
    plan = planned(run)
    assert seeds(plan) == {"museum.test": ["Name the oldest picture"], "shop.test:7770": sorted(FAILED)}
    assert [seed.page.title for group in plan.groups for seed in group.seeds] == ["The shop"] * 4
    record = plan.to_json()
    assert (record["seeds"], record["requests"], record["critic"]) == (4, 4, "none")
    assert "-s orm.model=FOLDER" in plan.notes[0]


def test_the_last_time_counts_and_one_success_of_several_is_enough(run):
    append(run, episode(0, FAILED[0], SOLVED, iteration=1))
    append(run, episode(1, FAILED[1], UNSOLVED, iteration=1))
    append(run, episode(2, FAILED[1], SOLVED, iteration=1))
    append(run, episode(3, FAILED[2], CRASHED, iteration=1))
    append(run, episode(4, "Log in as Emma", UNSOLVED, iteration=1))
    assert seeds(planned(run))["shop.test:7770"] == ["Log in as Emma", FAILED[2]]


def test_where_no_task_always_failed_those_that_failed_at_times_are_seeds(tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_text(task(FAILED[0]).model_dump_json() + "\n")
    run = new_run(tmp_path / "run", load(overrides=[f"tasks.train={file}"]))
    append(run, episode(0, FAILED[0], UNSOLVED))
    append(run, episode(1, FAILED[0], SOLVED))
    append(run, episode(2, FAILED[1], SOLVED))
    assert seeds(planned(run)) == {"shop.test:7770": [FAILED[0]]}
    append(run, episode(3, FAILED[0], SOLVED, iteration=1))
    with pytest.raises(MissingStageError, match="each that was scored is solved") as refused:
        planned(run)
    assert "curriculum.survey_episodes" in refused.value.hint


def test_what_a_demonstration_failed_at_is_no_failure_of_the_policy(run):
    append(run, episode(0, FAILED[0], UNSOLVED, iteration=1))
    append(run, episode(1, "Log in as Emma", UNSOLVED, iteration=1))
    result = seeds(planned(run, "loop.demonstration_iterations=1"))
    assert result == {"shop.test:7770": sorted([FAILED[0], "Log in as Emma"])}
    with pytest.raises(MissingStageError, match="no failed task"):
        planned(run, "loop.demonstration_iterations=2")


def test_what_nobody_judged_or_broke_or_was_a_test_is_no_failure(run):
    append(run, episode(10, "Not judged", UNKNOWN))
    append(run, episode(11, "Broken", CRASHED))
    append(run, episode(0, "Tested", UNSOLVED, split=Split.TEST))
    append(run, trajectory(12, outcome=UNSOLVED))
    assert seeds(planned(run))["shop.test:7770"] == sorted(FAILED)
    append_judgement(run, Split.TRAIN, 0, by_orm(0.1, trajectory="train-0000-00010", success=False))
    assert "Not judged" in seeds(planned(run))["shop.test:7770"]
    append_judgement(run, Split.TRAIN, 0, judgement(trajectory="train-0000-00010", success=True))
    assert seeds(planned(run))["shop.test:7770"] == sorted(FAILED)


def test_all_tasks_of_the_run_are_known_the_tests_and_the_untried_too(run):
    append(run, episode(0, "Tested", UNSOLVED, split=Split.TEST))
    known = planned(run).known
    assert set(known["shop.test:7770"]) == {*FAILED, "Track a parcel", "Log in as Emma", "Tested"}
    assert known["museum.test"] == ("Name the oldest picture",)


def test_the_settings_decide_how_often_is_asked_and_who_is_the_critic(run):
    plan = planned(run, "generate.requests_per_site=3", "generate.seeds_per_request=2", "orm.model=an-orm")
    assert ([len(requests) for requests in plan.rounds], plan.critic, plan.notes) == ([2, 2, 2], "orm", ())
    assert [len(request.seeds) for request in plan.rounds[0]] == [1, 2]
    assert planned(run, "orm.model=an-orm", "generate.critic=none").critic == "none"
    with pytest.raises(SettingsError, match=r"orm\.base_url .*orm\.model"):
        planned(run, "generate.critic=orm")


def test_the_policy_s_own_critic_goes_before_the_outcome_reward_model(run):
    result = planned(run, "orm.model=an-orm", has_critic=True)
    assert (result.critic, result.notes) == ("critic", ())
    assert planned(run, "orm.model=an-orm", "generate.critic=orm", has_critic=True).critic == "orm"
    with pytest.raises(SettingsError, match="has no critic that tells success"):
        planned(run, "generate.critic=critic")


def test_without_a_failure_it_says_what_is_missing(tmp_path):
    run = new_run(tmp_path / "empty")
    with pytest.raises(MissingStageError, match="no training trajectories"):
        planned(run)
    append(run, trajectory(0, outcome=UNSOLVED))
    with pytest.raises(MissingStageError, match="its tasks are of miniwob"):
        planned(run)
    append(run, episode(1, "Log in", SOLVED))
    with pytest.raises(MissingStageError, match="no failed task"):
        planned(run)


def test_a_task_file_that_is_gone_is_named(run, tmp_path):
    (tmp_path / "tasks.jsonl").unlink()
    with pytest.raises(UsageError, match=r"tasks\.jsonl: "):
        planned(run)
