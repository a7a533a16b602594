"""`webgym prepare --target orm` as people and scripts meet it."""

import json

import pytest

from tests.cli.runs import filled
from tests.forked import webgym
from tests.records.builders import UNSOLVED, trajectory
from webgym_cli.store.buffer import append
from webgym_cli.store.run import saved_settings
from webgym_cli.store.status import lock_run


@pytest.fixture
def run(tmp_path):
    """A run with four solved trajectories, two that were not solved and one that broke."""
    run_dir = filled(tmp_path)
    append(run_dir, trajectory(6, outcome=UNSOLVED))
    return run_dir


def test_a_dry_run_tells_both_kinds_and_writes_nothing(run, tmp_path):
    result = webgym("prepare", run.root, "--target", "orm", "-n", "--json", cwd=tmp_path)
    plan = json.loads(result.stdout)
    assert (plan["stage"], plan["yes"], plan["no"]) == ("prepare_orm", 2, 2)
    assert (plan["by_source"], plan["dropped_trajectories"]["left_out_for_balance"]) == ({"environment": 4}, 2)
    assert not run.orm.root.exists()


def test_it_leads_to_its_training_and_that_leaves_the_policy_alone(run, tmp_path):
    result = webgym("prepare", "run", "--target", "orm", "-s", "algorithm_config.num_train_epochs=1", cwd=tmp_path)
    assert "next: webgym train run/orm" in result.stderr
    assert [json.loads(line)["event"] for line in result.stdout.splitlines()][-1] == "prepare"
    assert not run.dataset.exists()
    assert saved_settings(run.orm).algorithm_config.num_train_epochs == 1
    assert saved_settings(run).algorithm_config.num_train_epochs == 2
    result = webgym("train", "run", "-n", cwd=tmp_path, code=3)
    assert "webgym prepare" in result.stderr


def test_without_a_dataset_its_training_names_the_command(run, tmp_path):
    webgym("prepare", "run", "--target", "orm", cwd=tmp_path)
    (run.orm.dataset / "prepared.json").unlink()
    result = webgym("train", "run/orm", "-n", cwd=tmp_path, code=3)
    assert f"next: webgym prepare {run.root} --target orm" in result.stderr


def test_while_it_is_trained_its_data_stay(run, tmp_path):
    with lock_run(run.orm, "train"):
        webgym("prepare", "run", "--target", "orm", cwd=tmp_path, code=75)
    assert not run.orm.dataset.exists()
    webgym("resume", "run", cwd=tmp_path)
    assert run.orm.dataset.exists()
