"""The curves of policy gradients, asynchronous training, and words for a policy that collapses or repeats itself."""

import pytest

from tests.inspect.buffers import fill_run
from tests.records.builders import new_run, step
from tests.report.runs import at, did, facts, note
from tests.tables import each
from webgym_cli.records.batch import DroppedGroup, TrainingBatch
from webgym_cli.records.stored_events import TrainingEvent
from webgym_cli.records.task import Split
from webgym_cli.report.page import render_report
from webgym_cli.report.training_metrics import (
    build_async_section,
    build_training_section,
    find_warnings,
    read_warnings,
)
from webgym_cli.store.metrics import append_batch

WELL = {"actor/entropy": 0.8, "critic/score/min": 0.0, "critic/score/max": 1.0}
WELL |= {"actor/rows_with_gradient": 1.0, "rollout_corr/kl": 0.001}


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
    run = new_run(tmp_path)
    rates = [("test", 0, 79, "m"), ("test", 1, 13, "m"), ("train", 0, 5, "m"), ("train", 1, 60, "m")]
    rates += [("train", 2, 1, "oracle"), ("test", 2, 0, "x at http://h:1/v1"), ("test", 1, 14, "m")]
    for split, iteration, successes, policy in rates:
        name = "rollout" if split == "train" else "evaluation"
        counted = {"iteration": iteration, "split": split, "policy": policy, "episodes": 100, "successes": successes}
        note(run, {"event": name, **counted})
    note(run, {"event": "rollout", "iteration": None})
    (warning,) = read_warnings(run)
    assert "test episodes fell from 0.79 (79 of 100, iteration 0) to 0.14 (14 of 100, iteration 1)" in warning


@pytest.mark.parametrize(
    ("before", "now", "words"),  # of `episodes`, `successes`, and their cases
    [
        ((8, 8, 2, 2.0), (8, 2, 2, 0.5), None),
        ((8, 8), (8, 2), "(8 of 8, iteration 0) to 0.25 (2 of 8, iteration 1)"),
        ((80, 80, 20, 20.0), (80, 20, 20, 4.5), "(20 of 20, iteration 0) to 0.23 (4.5 of 20, iteration 1)"),
        ((8, 8), (8, 2, 2, 0.5), "(8 of 8, iteration 0) to 0.25 (0.5 of 2, iteration 1)"),
    ],
)
def test_repeats_of_an_evaluation_are_no_trials_in_the_warning_of_a_collapse(tmp_path, before, now, words):
    run, names = new_run(tmp_path), ("episodes", "successes", "scored_cases", "solved_cases")
    for iteration, counts in enumerate((before, now)):
        evaluated = {"iteration": iteration, "split": "test", "policy": "m"}
        note(run, {"event": "evaluation", **evaluated, **dict(zip(names, counts, strict=False))})
    warnings = read_warnings(run)
    assert len(warnings) == (words is not None) and all(words in warning for warning in warnings)


def batch(parent: int, mode: str = "async", dropped=()) -> TrainingBatch:
    counts = {"iterations": (parent,), "groups": (), "episodes": 4, "staleness": {0: 30, 1: 10}, "as_of": {}}
    digests = {"plan_digest": "", "config_digest": "", "created_at": at(parent)}
    return TrainingBatch(parent=parent, policy="base", mode=mode, dropped=dropped, **counts, **digests)


def test_staleness_waits_and_drops_are_told(tmp_path):
    run = fill_run(tmp_path / "run", did(0, "shop", solved=True, split=Split.TRAIN))
    stale = DroppedGroup(id="a", reason="stale", trajectories=("a", "b"), rewards=(0.0, None))
    append_batch(run, batch(0, dropped=(stale,)))
    staleness = {"mean": 0.25, "p95": 1, "max": 1, "tokens": {"0": 30, "1": 10}}
    counts = {"episodes": 4, "groups": 2, "ready": 1, "open": 0, "staleness": staleness}
    waits = {"trainer_wait_seconds": 7.0, "admission_wait_seconds": 0.0, "held_seconds": 2.5}
    note(run, {"event": "batch", "iteration": 0, "at": at(50), **counts, **waits})
    result = facts(run)
    assert result["asynchronous"]["dropped"] == [{"reason": "stale", "count": 2, "mean_reward": 0.0}]
    section = build_async_section(result["asynchronous"])
    titles = ["Staleness of the trained tokens", "Waits before each batch"]
    assert [figure.title for figure in section.figures] == [*titles, "Episodes that were not trained on"]
    assert "trainer waited for episodes" in render_report(result).decode()


def test_training_in_turns_has_no_such_section(tmp_path):
    run = fill_run(tmp_path / "run", did(0, "shop", solved=True, split=Split.TRAIN))
    append_batch(run, batch(0, mode="sync"))
    assert build_async_section(facts(run)["asynchronous"]).figures == ()


def episode(number, *responses):
    steps = tuple(step(at, response=result) for at, result in enumerate(responses))
    trajectory = did(number, f"task{number % 3}", solved=False, split=Split.TRAIN)
    return trajectory.model_copy(update={"steps": steps})


def test_repeated_responses_are_said_in_words(tmp_path):
    stuck = fill_run(tmp_path / "stuck", *(episode(n, *[f"click {n}"] * 6) for n in range(12)))
    (warning,) = facts(stuck)["warnings"]
    assert "100 % of the responses repeat that of the step before" in warning
    same = fill_run(tmp_path / "same", *(episode(n, "click 1") for n in range(60)))
    (warning,) = facts(same)["warnings"]
    assert "over 3 tasks, are one and the same" in warning
    varied = fill_run(tmp_path / "varied", *(episode(n, *(f"click {n} {at}" for at in range(6))) for n in range(12)))
    assert facts(varied)["warnings"] == []


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
