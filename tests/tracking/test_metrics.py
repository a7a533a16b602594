"""Names and values of metrics, against events written by hand."""

from __future__ import annotations

from webgym_cli.tracking.metrics import extract_metrics


def test_numbers_are_named_by_their_event_and_fact():
    event = {
        "event": "rollout",
        "iteration": 3,
        "split": "train",
        "policy": "vllm",
        "at": "2026-01-01T00:00:00+00:00",
        "episodes": 8,
        "success_rate": 0.25,
        "interval": [0.1, 0.6],
        "failures": {"page_timeout": 2},
        "stages": {"policy": {"p50": 0.5, "buckets": [1, 2, 3]}},
    }
    assert extract_metrics(event) == {
        "rollout/episodes": 8, "rollout/success_rate": 0.25, "rollout/interval_low": 0.1,
        "rollout/interval_high": 0.6, "rollout/failures/page_timeout": 2, "rollout/stages/policy/p50": 0.5,
    }  # fmt: skip


def test_results_of_another_server_have_names_of_their_own():
    event = {"event": "evaluation", "policy": "policy at http://host:8000/v1", "iteration": 0, "success_rate": 0.7}
    assert extract_metrics(event) == {"evaluation/policy_at_http_host_8000_v1/success_rate": 0.7}


def test_what_is_unknown_or_infinite_is_left_out():
    assert extract_metrics({"event": "judge", "success_rate": None, "seconds": float("inf"), "calls": 3}) == {
        "judge/calls": 3
    }


def test_names_that_the_web_makes_up_make_no_metrics():
    servers = {"http://host:1/v1": {"requests": 4}}
    event = {"event": "rollout", "servers": servers, "failures_by_site": {"a.com": {"page_timeout": 1}}, "cut": 0}
    assert extract_metrics(event) == {"rollout/cut": 0}


def test_a_whole_training_is_told_apart_from_its_steps():
    assert extract_metrics({"event": "train", "loss": 0.5, "steps": 7, "version": 1}) == {
        "train/mean_loss": 0.5,
        "train/optimizer_steps": 7,
        "train/version": 1,
    }


def test_signs_with_a_meaning_are_taken_out_of_names():
    assert extract_metrics({"event": "a b", "x/y*": 1}) == {"a_b/x_y_": 1}


def test_what_our_own_trainer_measured_keeps_its_names():
    event = {
        "event": "train",
        "iteration": 3,
        "steps": 2,
        "metrics": {"actor/pg_loss": -0.5, "critic/score/mean": 0.25},
    }
    assert extract_metrics(event) == {"train/optimizer_steps": 2, "actor/pg_loss": -0.5, "critic/score/mean": 0.25}
