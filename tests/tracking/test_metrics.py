"""Names and values of metrics, against events written by hand."""

from tests.tables import each
from webgym_cli.tracking.worker import extract_metrics


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


OF_A_POLICY = {"event": "evaluation", "policy": "policy at http://host:8000/v1", "iteration": 0, "success_rate": 0.7}
OF_SITES = {"servers": {"http://host:1/v1": {"requests": 4}}, "failures_by_site": {"a.com": {"page_timeout": 1}}}
METRICS = {"actor/pg_loss": -0.5, "critic/score/mean": 0.25}
CASES = {
    "results of another server have names of their own": (
        OF_A_POLICY,
        {"evaluation/policy_at_http_host_8000_v1/success_rate": 0.7},
    ),
    "an expert's success is no point of the policy's curve": (
        {"event": "rollout", "policy": "oracle", "success_rate": 1.0},
        {"rollout/oracle/success_rate": 1.0},
    ),
    "what is unknown or infinite is left out": (
        {"event": "judge", "success_rate": None, "seconds": float("inf"), "calls": 3},
        {"judge/calls": 3},
    ),
    "names that the web makes up make no metrics": ({"event": "rollout", **OF_SITES, "cut": 0}, {"rollout/cut": 0}),
    "a whole training is told apart from its steps": (
        {"event": "train", "loss": 0.5, "steps": 7, "version": 1},
        {"train/mean_loss": 0.5, "train/optimizer_steps": 7, "train/version": 1},
    ),
    "signs with a meaning are taken out of names": ({"event": "a b", "x/y*": 1}, {"a_b/x_y_": 1}),
    "what our own trainer measured keeps its names": (
        {"event": "train", "iteration": 3, "steps": 2, "metrics": METRICS},
        {"train/optimizer_steps": 2, **METRICS},
    ),
}


@each(("event", "metrics"), CASES.values())
def test_the_metrics_of_an_event(event, metrics):
    assert extract_metrics(event) == metrics
