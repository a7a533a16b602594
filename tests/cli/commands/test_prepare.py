"""`webgym prepare` as people and scripts meet it."""

import json

import pytest

from tests.cli.runs import filled
from tests.forked import webgym
from tests.prepare.buffer import fill
from tests.records.builders import CRASHED, UNSOLVED, new_run, trajectory
from tests.stack_fixtures import needs
from webgym_cli.config.load import load
from webgym_cli.store.metrics import read_events


@pytest.fixture
def run(run):
    """A run with two solved trajectories of two steps, one that failed and one that broke."""
    fill(run, trajectory(0), trajectory(1), trajectory(2, outcome=UNSOLVED), trajectory(3, outcome=CRASHED))
    return run


def prepare(run, *arguments, **options):
    return webgym("prepare", run.root, *arguments, cwd=run.root.parent, **options)


def test_a_dry_run_is_one_object_with_every_filter(run):
    plan = json.loads(prepare(run, "--dry-run", "-s", "filters.max_steps_per_task=3").stdout)
    assert (plan["trajectories"], plan["steps"], plan["eligible_steps"]) == (4, 8, 3)
    assert plan["samples_by_iteration"] == {"0": 3}
    dropped = {"ambiguous_id": 0, "failure": 1, "empty": 0, "too_few_steps": 0, "reward_unknown": 0, "unsuccessful": 1}
    assert plan["dropped_trajectories"] == dropped
    assert plan["dropped_steps"] == {"no_action": 0, "same_screenshot": 0, "task_cap": 1}
    assert plan["steps_of_dropped_trajectories"] == 4
    assert not run.dataset.exists()


@pytest.mark.parametrize(("demonstrations", "notes", "kind"), [(1, 1, "dataset"), (0, 0, "batch")])
def test_the_algorithm_of_a_demonstration_iteration_is_named_if_another_is_asked_for(run, demonstrations, notes, kind):
    given = (f"loop.demonstration_iterations={demonstrations}", "train.algorithm=grpo")
    prepared = prepare(run, "--dry-run", "-s", given[0], "-s", given[1], code=0 if kind == "dataset" else 1)
    named = [line for line in prepared.stderr.splitlines() if "loop.demonstration_algorithm=sft" in line]
    assert len(named) == notes
    assert all(text in line for line in named for text in given[1:])
    assert ("samples_by_iteration" in prepared.stdout) is (kind == "dataset")


def test_filters_that_leave_nothing_say_so(run):
    prepared = prepare(run, "-s", 'filters.only_sites=["example.com"]', code=1)
    assert prepared.stdout == ""
    assert "no step is fit for training (1 x failure, 1 x unsuccessful, 2 x other_site)" in prepared.stderr


def test_it_is_recorded_like_a_loop_s_and_draws_again_when_it_is_said_again(tmp_path, tiny_model_dir):
    texts = [f"policy_config.base_model={tiny_model_dir}", "algorithm_config.bf16=false", "train.check_template=false"]
    own = new_run(tmp_path / "own", load((), texts))
    fill(own, trajectory(0), trajectory(1))
    for _ in range(2):
        prepare(own)
    noted = list(read_events(own, "prepare"))
    assert len(noted) == 2
    assert all(event["train_samples"] + event["val_samples"] == 4 and event["seconds"] >= 0 for event in noted)


CHECKED = ("-s", "train.check_template=true")


@pytest.mark.stack
def test_prompts_that_are_trained_otherwise_than_they_were_served_are_refused(tmp_path):
    needs("train")
    own = filled(tmp_path)
    prepared = prepare(own, *CHECKED, code=2)
    assert "LLaMA-Factory's qwen3_vl_nothink renders other prompts than the model was served" in prepared.stderr
    assert "\n  served:  " in prepared.stderr and "\n  trained: " in prepared.stderr
    assert json.loads(prepared.stdout.splitlines()[-1])["event"] == "prepare"  # the data is there to be looked at


def test_without_the_trainer_the_prompts_are_compared_when_it_trains(tmp_path):
    own = filled(tmp_path)
    prepared = prepare(own, *CHECKED, "-s", f"venvs.train={tmp_path / 'nowhere'}")
    assert f"{tmp_path / 'nowhere'} does not exist" in prepared.stderr and "by webgym train" in prepared.stderr
