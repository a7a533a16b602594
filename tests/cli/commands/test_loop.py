"""`webgym loop` as people and scripts meet it; with the trainer it is under tests/stack."""

import json

import pytest

from tests.cli.runs import model
from tests.forked import webgym
from tests.records.builders import published
from webgym_cli.cli.commands.loop import format_improvements, progress_table
from webgym_cli.config.load import load
from webgym_cli.store.run import RunDir, create_or_open


def loop(tmp_path, *arguments, **options):
    return webgym("loop", "run", *arguments, cwd=tmp_path, **options)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"phase": "both", "trainings_to_do": 3, "evaluations": [0, 1, 2, 3]}),
        (("--eval-every", "2", "--iterations", "5"), {"trainings_to_do": 5, "evaluations": [0, 2, 4, 5]}),
        (("--phase", "rollout"), {"trainings_to_do": 0, "evaluations": [0]}),
        (("--phase", "update"), {"trainings_to_do": 1, "evaluations": []}),
        (("--until", "0.8", "--min-success", "0.5", "--keep-going"), {"until": 0.8, "min_success": 0.5}),
        (("-s", "loop.eval_every=3"), {"evaluations": [0, 3]}),
    ],
)
def test_a_dry_run_tells_trainings_and_evaluations_and_writes_nothing(tmp_path, arguments, expected):
    filled_model = model(tmp_path / "model")
    settings = ("-s", "loop.iterations=3", "-s", f"policy_config.base_model={filled_model}")
    plan = json.loads(loop(tmp_path, "-c", "demo", *settings, "--dry-run", "--json", *arguments).stdout)
    assert {key: plan[key] for key in expected} == expected
    assert list(tmp_path.iterdir()) == [filled_model]


def test_an_update_without_episodes_is_3(tmp_path):
    assert "next: webgym rollout" in loop(tmp_path, "-c", "demo", "--phase", "update", code=3).stderr


def test_fewer_iterations_than_the_run_has(tmp_path):
    run, settings = RunDir(tmp_path / "run"), load(["demo"])
    create_or_open(run, settings)
    for version in (1, 2):
        published(run, settings, version)
    stderr = loop(tmp_path, "--iterations", "1", "--eval-every", "0").stderr
    assert "the run has 2 trainings already" in stderr and "webgym loop run --iterations 3" in stderr


@pytest.mark.browser
def test_the_rollout_phase_collects_and_ends(tmp_path):
    create_or_open(RunDir(tmp_path / "run"), load(["demo"], ["loop.demonstration_episodes=4"]))
    result = loop(tmp_path, "--phase", "rollout", "--eval-every", "0", "--json")
    summary = [json.loads(line) for line in result.stdout.splitlines()][-1]
    assert (summary["event"], summary["episodes"], summary["success_rate"]) == ("rollout", 4, 1.0)
    assert "next: webgym loop run --phase update" in result.stderr
    loop(tmp_path, "--phase", "rollout", "--eval-every", "0")


def test_an_evaluation_whose_rewards_are_unknown_is_shown_as_such():
    known = {"iteration": 0, "episodes": 10, "successes": 2, "success_rate": 0.2, "interval": [0.06, 0.51]}
    unknown = {"iteration": 1, "episodes": 0, "successes": 0, "success_rate": None, "interval": [0.0, 1.0]}
    served = {**known, "policy": "policy at http://host:1/v1"}
    assert progress_table([served])[1][0][0] == served["policy"], "it is no version of the run's policy"
    _, rows = progress_table([known, unknown, {**known, "iteration": 2}])
    assert [(row[2], row[4]) for row in rows] == [("0.200", ""), ("", ""), ("0.200", "")]
    assert format_improvements([known, unknown], 0) == []
