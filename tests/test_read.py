"""Runs and evaluations as Arrow tables."""

import pytest

from tests.compare.test_evaluations import U, write
from tests.records.builders import new_run
from tests.report.runs import did, log_steps
from webgym_cli.compare.study import find_record
from webgym_cli.config.load import load
from webgym_cli.errors import MissingStageError, UsageError
from webgym_cli.read import (
    read_evaluations,
    read_optimizer_steps,
    read_query,
    read_runs,
    read_steps,
    read_trainings,
    read_trajectories,
)
from webgym_cli.store.buffer import append
from webgym_cli.store.metrics import append_event


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("read")
    for seed, name in enumerate("ab"):
        run = new_run(root / name, load(overrides=[f"seed={seed}", f"agent.num_chains={2 * seed + 2}"]))
        append(run, did(seed, "t", solved=bool(seed)))
        training = {"version": 1, "name": "m", "parent": "base", "iteration": 0, "steps": 2, "created_at": "x"}
        append_event(run, {"event": "train", **training, "metrics": {"actor/entropy": 0.5 + seed}})
        log_steps(run, "m", {"loss": 0.1}, {"loss": 0.2})
    return [str(root / name) for name in "ab"]


def test_episodes_and_steps_of_several_runs_are_one_table(runs):
    episodes = read_trajectories(*runs).to_pylist()
    assert [(one["run"], one["success"]) for one in episodes] == [(runs[0], False), (runs[1], True)]
    steps = read_steps(*runs).to_pylist()
    assert {one["run"] for one in steps} == {*runs}
    (count,) = read_query("SELECT count(*) AS n FROM steps", *runs).to_pylist()
    assert count == {"n": len(steps)}
    with pytest.raises(UsageError):
        read_query("SELECT nothing FROM steps", *runs)


def test_runs_have_the_settings_that_differ(runs):
    rows = read_runs(*runs).to_pylist()
    assert [(one["seed"], one["agent.num_chains"], one["success_rate"]) for one in rows] == [(0, 2, 0.0), (1, 4, 1.0)]


def test_trainings_and_their_steps(runs):
    assert read_trainings(*runs)["actor/entropy"].to_pylist() == [0.5, 1.5]
    steps = read_optimizer_steps(*runs).to_pylist()
    assert [(one["run"], one["version"], one["optimizer_step"], one["loss"]) for one in steps] == [
        (run, 1, step, loss) for run in runs for step, loss in ((1, 0.1), (2, 0.2), (2, None))
    ]


def test_evaluations_have_rates_and_conditions(tmp_path):
    record = write(tmp_path, "one", {"a": [U, U]})
    (row,) = read_evaluations(record).to_pylist()
    assert (row["record"], row["overall.rate"]) == (str(find_record(record)), 0.5)
    assert any(name.startswith("conditions.") for name in row)
    with pytest.raises(MissingStageError, match="on: there is no evaluation"):  # it was a table without rows
        read_evaluations(record, tmp_path / "on")


def test_a_pattern_that_matches_no_run_is_named():
    with pytest.raises(UsageError, match="no run is given"):
        read_trajectories()
