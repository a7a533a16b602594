"""Optimizer steps of a run's trainings, and their curves."""

import pytest

from tests.report.runs import log_steps
from webgym_cli.store.metrics import POINTS, append_event, read_optimizer_steps, read_step_curves


@pytest.fixture
def run(run):
    for version in (1, 2):
        training = {"version": version, "name": f"m{version}", "parent": "base", "iteration": version - 1}
        append_event(run, {"event": "train", **training, "steps": 2, "created_at": "x"})
    return run


def test_steps_count_on_from_training_to_training(run):
    log_steps(run, "m1", {"loss": 2.0}, {"eval_loss": 9.0}, {"loss": 1.0, "actor/ppo_kl": 0.5})
    log_steps(run, "m2", {"loss": float("nan")}, {"loss": 0.5})
    lines = list(read_optimizer_steps(run))
    numbers = [(line["version"], line["optimizer_step"]) for line in lines]
    assert numbers == [(1, 1), (1, 2), (1, 3), (1, 3), (2, 4), (2, 5), (2, 5)]
    curves = read_step_curves(run, ("loss", "actor/ppo_kl", "lr"))
    points = [(at["optimizer_step"], at["version"], at["mean"]) for at in curves["loss"]]
    assert points == [(1, 1, 2.0), (3, 1, 1.0), (5, 2, 0.5)]
    assert [(at["optimizer_step"], at["mean"]) for at in curves["actor/ppo_kl"]] == [(3, 0.5)]
    assert "lr" not in curves


def test_many_steps_are_means_of_a_few_points(run):
    log_steps(run, "m1", *({"loss": float(step)} for step in range(2 * POINTS + 2)))
    curve = read_step_curves(run, ("loss",))["loss"]
    assert (len(curve), curve[0]) == (68, {"optimizer_step": 3, "version": 1, "mean": 1.0, "lines": 3})
    assert curve[-1] == {"optimizer_step": 202, "version": 1, "mean": 201.0, "lines": 1}
