"""A curriculum's phases: in which order their steps come, on which tasks, and that a kill anywhere costs nothing."""

import json

import pytest

from tests.loop.curriculum_stages import WORDS, Killed, Told, planned_instructions, ran, settings_in
from webgym_cli.errors import MissingStageError, UsageError
from webgym_cli.loop.phases import Phases, last_iteration, phase_of, plan_curriculum
from webgym_cli.loop.preparation import count_missing_episodes
from webgym_cli.records.task import Split
from webgym_cli.rollout.plan import plan_rollout, write_plan
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import create_or_open, saved_settings
from webgym_cli.tasks.source import open_tasks


def new(run, iteration):
    tasks = open_tasks(str(run.new_tasks(iteration)))
    return [task.instruction for task in tasks.read(range(len(tasks)))]


async def test_a_phase_is_generate_rollout_score_prepare_train_evaluate(run, tmp_path):
    shown = await ran(run, settings_in(tmp_path))
    assert Told.calls == [
        ("test", 0, 2),
        *[("survey train", 0, 4), ("judge", "survey", 4)],
        *[("train", 0, 3), ("judge", "run", 3), ("prepare", 0), ("train", 0)],
        ("test", 1, 2),
        *[("train", 1, 3), ("judge", "run", 3), ("prepare", 1), ("train", 1)],
        ("test", 2, 2),
    ]
    steps = [(event["phase"], event["step"]) for event in shown if event["event"] == "phase_step"]
    assert steps == [
        *((1, step) for step in ("survey", "generate", "rollout", "score", "train")),
        *((2, step) for step in ("generate", "rollout", "score", "train")),
    ]
    assert [event["iteration"] for event in read_events(run, "evaluation")] == [0, 1, 2]


async def test_each_phase_tries_each_of_its_own_new_tasks_once_whose_seeds_are_what_failed(run, tmp_path):
    await ran(run, settings_in(tmp_path))
    for iteration in range(2):
        assert sorted(planned_instructions(run, iteration)) == sorted(new(run, iteration))
        assert len(set(new(run, iteration))) == 3
    assert set(planned_instructions(run.survey, 0)) == set(WORDS)
    assert not {*new(run, 0), *new(run, 1)} & set(WORDS)
    assert not set(new(run, 0)) & set(new(run, 1))
    first, second = (open_tasks(str(run.new_tasks(number))).task(0).extra["seeds"] for number in range(2))
    assert set(first) == {words.replace(" ", "-") for words in WORDS} - {"Log-in-as-Emma"}
    assert all(seed.startswith("generated-") for seed in second)


async def test_the_demonstrations_come_first_and_are_phase_0(run, tmp_path, monkeypatch):
    monkeypatch.setattr("webgym_cli.loop.loop_plan.plan_current_rollout", lambda *_: None)  # its tasks have no expert
    settings = settings_in(tmp_path, "loop.demonstration_iterations=1", "loop.demonstration_episodes=2")
    shown = await ran(run, settings)
    assert Told.calls[:4] == [("test", 0, 2), ("train", 0, 2), ("prepare", 0), ("train", 0)]
    assert Told.calls[5:8] == [("survey train", 0, 4), ("judge", "survey", 4), ("train", 1, 3)]
    assert (version(run), run.new_tasks(0).exists(), run.new_tasks(2).exists()) == (3, False, True)
    assert next(event["phase"] for event in shown if event["event"] == "phase_step") == 1
    survey = json.loads(run.survey.config.read_text())
    assert survey["policy_config"]["base_model"] == str(run.checkpoints / "model_20260101_000000")
    assert [(event["phase"], event["version"]) for event in read_events(run, "phase")] == [(1, 2), (2, 3)]


async def test_a_survey_gets_no_further_episodes_for_equal_rewards(run, tmp_path):
    await ran(run, settings_in(tmp_path, "train.algorithm=grpo", "agent.num_chains=2"))
    surveyed = saved_settings(run.survey)
    plan = plan_rollout(run.survey, surveyed, Split.TRAIN, 0, 8)
    assert (plan.done, count_missing_episodes(run.survey, surveyed, plan)) == (8, 0)


async def test_what_a_phase_and_its_survey_came_to_is_recorded(run, tmp_path):
    await ran(run, settings_in(tmp_path))
    first, second = read_events(run, "phase")
    wanted = {"phase": 1, "phases": 2, "iteration": 0, "version": 1, "new_tasks": 3, "episodes": 3}
    assert wanted.items() <= first.items()
    rejected = (tmp_path / "run/tasks/new.iteration_0000.jsonl.rejected.jsonl").read_text().splitlines()
    assert (first["turned_down"], len(rejected) > 0) == (len(rejected), True)
    assert (first["scored"], first["successes"], first["success_rate"]) == (3, 0, 0.0)
    assert second["name"] == "model_20260102_000000"
    (survey,), generated = read_events(run, "survey"), list(read_events(run, "generate"))
    assert (survey["iteration"], survey["success_rate"]) == (0, 0.25)
    assert [event["kept"] for event in generated] == [3, 3]
    assert not list(read_events(run.survey, "survey"))


async def test_without_new_tasks_each_phase_draws_from_the_original_ones(run, tmp_path):
    await ran(run, settings_in(tmp_path, "curriculum.generate=false"))
    assert [call for call in Told.calls if call[0] == "train" and len(call) == 3] == [("train", 0, 3), ("train", 1, 3)]
    assert set(planned_instructions(run, 0)) | set(planned_instructions(run, 1)) <= set(WORDS)
    assert (run.survey.exists, run.new_tasks(0).exists()) == (False, False)
    assert [event["new_tasks"] for event in read_events(run, "phase")] == [None, None]


async def test_more_phases_go_on_after_the_last(run, tmp_path):
    await ran(run, settings_in(tmp_path))
    Told.calls.clear()
    await ran(run, settings_in(tmp_path, "curriculum.phases=3", "curriculum.tasks_per_phase=2"))
    assert Told.calls == [("train", 2, 2), ("judge", "run", 2), ("prepare", 2), ("train", 2), ("test", 3, 2)]
    assert [event["phases"] for event in read_events(run, "phase")] == [2, 2, 3]


async def test_an_evaluation_that_is_good_enough_ends_it(run, tmp_path):
    await ran(run, settings_in(tmp_path), until=0.2)
    assert Told.calls == [("test", 0, 2)]


async def test_a_run_that_solves_everything_says_that_nothing_is_left(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.loop.curriculum_stages.KNOWN", "")
    with pytest.raises(MissingStageError, match="no failed task"):
        await ran(run, settings_in(tmp_path))


def test_an_iteration_that_was_begun_on_the_original_tasks_is_no_phase(run, tmp_path):
    settings = settings_in(tmp_path)
    create_or_open(run, settings)
    write_plan(run, plan_rollout(run, settings, Split.TRAIN, 0, 2))
    with pytest.raises(UsageError, match="iteration 0 was rolled out on"):
        plan_curriculum(run, settings)
    plan_curriculum(run, settings_in(tmp_path, "curriculum.generate=false"))


async def test_a_plan_tells_what_is_left_of_each_phase(run, tmp_path, monkeypatch):
    settings = settings_in(tmp_path)
    record = plan_curriculum(run, settings).to_json()
    steps = ["generate", "rollout", "score", "prepare", "train", "evaluate"]
    first = {"phase": 1, "iteration": 0, "steps": ["survey", *steps]}
    assert record["phases_to_do"] == [first, {"phase": 2, "iteration": 1, "steps": steps}]
    assert (record["baseline"], record["demonstrations_to_do"]) == (settings.policy_config.base_model, 0)
    assert (record["stage"], record["evaluations"], record["survey_episodes"]) == ("curriculum", [0, 1, 2], 4)
    monkeypatch.setattr(Told, "dies", "training 0")
    with pytest.raises(Killed):
        await ran(run, settings)
    (first, _) = plan_curriculum(run, settings).phases
    assert first["steps"] == ["score", "prepare", "train", "evaluate"]
    await ran(run, settings)
    assert plan_curriculum(run, settings).phases == ()


def test_phases_are_counted_after_the_demonstrations_and_a_step_before_them_is_not_told(run, tmp_path):
    settings, shown = settings_in(tmp_path, "loop.demonstration_iterations=2"), []
    assert [phase_of(settings, number) for number in range(5)] == [0, 0, 1, 2, 3]
    assert last_iteration(settings) == 4
    for number in range(3):
        Phases(Told(run, settings, tmp_path, shown.append)).emit_step(number, "train")
    assert [event["message"] for event in shown] == ["phase 1 of 2: train"]
