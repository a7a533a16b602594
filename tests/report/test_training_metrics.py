"""The curves of policy gradients, and the words for a policy that collapses."""

import pytest

from tests.inspect.buffers import made
from tests.report.runs import at, did, facts, note
from webgym_cli.records.stored_events import TrainingEvent
from webgym_cli.records.task import Split
from webgym_cli.report.page import render_report
from webgym_cli.report.training_metrics import build_training_section, find_warnings

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
        {"series": "train", "band": None, "iteration": number, "scored": scored, "successes": count}
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
    (found,) = find_warnings(trained(WELL, WELL | changed), success(1, 1))
    assert words in found


def test_success_that_is_gone_is_said():
    (found,) = find_warnings([], success(2, 4, 0))
    assert "iteration 2" in found and "4 of 10" in found
    assert find_warnings([], success(0, 0)) == []


def test_the_report_has_the_curves_and_the_warnings(tmp_path):
    run = made(tmp_path / "run", *(did(n, "shop", solved=True, split=Split.TRAIN) for n in range(3)))
    steps = {"steps": 5, "loss": 0.1, "created_at": at(90), "parent": "m"}
    for number, entropy in enumerate((0.9, 0.01)):
        metrics = WELL | {"actor/entropy": entropy, "grad_norm": float("nan")}
        fixed = {"version": number + 1, "name": f"m{number}", "iteration": number, "metrics": metrics, **steps}
        note(run, {"event": "train", "at": at(100 * number), **fixed})
    told = facts(run)
    (warning,) = told["warnings"]
    page = render_report(told, []).decode()
    assert warning in page and 'id="policy-gradients"' in page
    titles = [figure.title for figure in build_training_section(told["trainings"]).figures]
    assert titles == ["Entropy", "Rows with gradient", "Mismatch of server and trainer"]
