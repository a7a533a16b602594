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
    (run.orm.dataset / "prepared.json").unlink()
    for named, hint in (("run", "webgym prepare"), ("run/orm", f"next: webgym prepare {run.root} --target orm")):
        assert hint in webgym("train", named, "-n", cwd=tmp_path, code=3).stderr


def test_while_it_is_trained_its_data_stay(run, tmp_path):
    with lock_run(run.orm, "train"):
        webgym("prepare", "run", "--target", "orm", cwd=tmp_path, code=75)
    assert not run.orm.dataset.exists()
    webgym("resume", "run", cwd=tmp_path)
    assert run.orm.dataset.exists()
