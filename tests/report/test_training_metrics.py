"""The curves of policy gradients, and the words for a policy that collapses."""

import pytest

from tests.inspect.buffers import fill_run
from tests.report.runs import at, did, facts, note
from tests.tables import each
from webgym_cli.records.stored_events import TrainingEvent
from webgym_cli.records.task import Split
from webgym_cli.report.page import render_report
from webgym_cli.report.training_metrics import build_training_section, find_warnings, read_warnings
from webgym_cli.store.run import RunDir

WELL = {
    "actor/entropy": 0.8,
    "critic/score/min": 0.0,
    "critic/score/max": 1.0,
    "actor/rows_with_gradient": 1.0,
    "rollout_corr/kl": 0.001,
}


def trained(*metrics):
    fixed = {"parent": "m", "steps": 1, "created_at": at(0)}
    return [
        TrainingEvent(version=number + 1, name=f"m{number}", iteration=number, metrics=measured, **fixed)
        for number, measured in enumerate(metrics)
    ]


def success(*counts, scored=10):
    return [
        {"series": "train", "band": None, "iteration": number, "scored_cases": scored, "solved_cases": count}
        for number, count in enumerate(counts)
    ]


def test_a_policy_that_does_well_has_no_warning():
    assert find_warnings(trained(WELL, WELL), success(0, 3, 5)) == []
    assert find_warnings(trained({}, {}), success(3, 2)) == find_warnings([], []) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"actor/entropy": 0.1}, "fell from 0.8 to 0.1 nats"),
        ({"critic/score/max": 0.0}, "All rewards that version 2 was trained on were 0"),
        ({"actor/rows_with_gradient": 0.25}, "Only 25 % of the rows"),
        ({"rollout_corr/kl": -0.2}, "differ by -0.2 nats"),
        ({"rollout_corr/kl": 0.0, "rollout_corr/staleness_0/kl": 0.3}, "differ by 0.3 nats"),
    ],
)
def test_what_shows_a_collapse_is_said(changed, words):
    (warning,) = find_warnings(trained(WELL, WELL | changed), success(1, 1))
    assert words in warning


@each(
    ("counts", "scored", "warns"),
    [
        ((2, 4, 0), 10, True),
        ((79, 60, 13), 100, True),
        ((20, 79, 70, 13), 100, True),
        ((79, 40), 100, False),
        ((79, 39), 100, True),
        ((3, 1), 4, False),  # chance
        ((13, 79), 100, False),
        ((79, 13, 70), 100, False),  # it has recovered
        ((0, 0), 10, False),
        ((79,), 100, False),
    ],
)
def test_success_that_falls_steeply_is_said(counts, scored, warns):
    warnings = find_warnings([], success(*counts, scored=scored))
    assert bool(warnings) == warns
    assert all(f"to {counts[-1] / scored:.2f} " in words and words.endswith(").") for words in warnings)


@pytest.mark.parametrize(
    ("entropies", "words"),
    [
        ((0.5, 0.9, 2.4), "while the entropy rose from 0.5 to 2.4 nats"),
        ((0.5, 0.55, 0.55), None),
        ((2.0, 1.0, 1.3), None),
    ],
)
def test_the_entropy_that_rose_meanwhile_is_named(entropies, words):
    trainings = trained(*(WELL | {"actor/entropy": entropy} for entropy in entropies))
    (warning,) = find_warnings(trainings, success(30, 79, 50, 13, scored=100))
    assert "fell from 0.79" in warning and (words in warning if words else warning.endswith("iteration 3)."))


def test_the_metrics_alone_show_a_collapse_of_the_runs_own_policy(tmp_path):
    run = RunDir(tmp_path)
    rates = [("test", 0, 79, "m"), ("test", 1, 13, "m"), ("train", 0, 5, "m"), ("train", 1, 60, "m")]
    rates += [("train", 2, 1, "oracle"), ("test", 2, 0, "x at http://h:1/v1"), ("test", 1, 14, "m")]
    for split, iteration, successes, policy in rates:
        name = "rollout" if split == "train" else "evaluation"
        counted = {"iteration": iteration, "split": split, "policy": policy, "episodes": 100, "successes": successes}
        note(run, {"event": name, **counted})
    note(run, {"event": "rollout", "iteration": None})
    (warning,) = read_warnings(run)
    assert "test episodes fell from 0.79 (79 of 100, iteration 0) to 0.14 (14 of 100, iteration 1)" in warning


def test_the_report_has_the_curves_and_the_warnings(tmp_path):
    run = fill_run(tmp_path / "run", *(did(n, "shop", solved=True, split=Split.TRAIN) for n in range(3)))
    steps = {"steps": 5, "loss": 0.1, "created_at": at(90), "parent": "m"}
    for number, entropy in enumerate((0.9, 0.01)):
        metrics = WELL | {"actor/entropy": entropy, "grad_norm": float("nan")}
        fixed = {"version": number + 1, "name": f"m{number}", "iteration": number, "metrics": metrics, **steps}
        note(run, {"event": "train", "at": at(100 * number), **fixed})
    result = facts(run)
    (warning,) = result["warnings"]
    page = render_report(result).decode()
    assert warning in page and 'id="policy-gradients"' in page
    titles = [figure.title for figure in build_training_section(result["trainings"]).figures]
    assert titles == ["Entropy", "Rows with gradient", "Mismatch of server and trainer"]
