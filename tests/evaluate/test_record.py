"""The numbers of a record, by hand."""

import math

import pytest

from webgym_cli.config.cost import CostSettings
from webgym_cli.evaluate.record import build_record
from webgym_cli.evaluate.results import EpisodeEnd, EpisodeResult, EpisodeSpending
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.usage import TokenUsage

S, U, B, F = EpisodeEnd.SUCCESS, EpisodeEnd.UNSOLVED, EpisodeEnd.BLOCKED, EpisodeEnd.FAILED
CONDITIONS = {"judge": {"models": {"verdict": "judge", "blocking": "judge"}}}
TASKS = {"a": (S, S, U), "b": (U, S, B), "c": (U, U, F)}


def results(tasks=TASKS, **changes):
    episode_results = []
    for name, ends in tasks.items():
        task = Task(id=name, start_url=f"http://{name}.com/", environment="web", difficulty=ord(name) - 96)
        for repeat, end in enumerate(ends):
            episode = Episode(
                id=f"{name}{repeat}", split=Split.TEST, iteration=0, task=task, seed=1, max_steps=9, repeat=repeat
            )
            failure = {B: "site_blocked", F: "browser_crashed"}.get(end, "")
            spent = EpisodeSpending(steps=repeat + 1, seconds=2.0, **changes)
            episode_results.append(EpisodeResult(episode, end, failure=failure, steps=repeat + 1, spent=spent))
    return episode_results


def build(episode_results, **cost):
    return build_record(CONDITIONS, episode_results, CostSettings.model_validate(cost), ("hub/policy", "policy"))


def test_both_denominators_with_mean_and_deviation_of_the_repeats():
    record = build(results())
    assert [record[name] for name in ("episodes", "valid", "successes", "blocked", "failed")] == [9, 7, 3, 1, 1]
    overall, valid = record["overall"], record["valid_only"]
    assert overall["rate"] == round((2 / 3 + 1 / 3 + 0) / 3, 4)
    assert overall["by_repeat"] == [round(rate, 4) for rate in (1 / 3, 2 / 3, 0)]
    assert overall["mean"] == round(1 / 3, 4)
    assert overall["standard_deviation"] == round(math.sqrt(2 * (1 / 3) ** 2 / 2), 4)
    assert valid["rate"] == round((2 / 3 + 1 / 2 + 0) / 3, 4)
    assert valid["by_repeat"] == [0.3333, 0.6667, 0.0]
    assert record["failures"] == {"browser_crashed": 1, "site_blocked": 1}


def test_the_interval_counts_tasks_not_repeats():
    once, thrice = (build(results({"a": (S,) * n, "b": (U,) * n})) for n in (1, 3))
    assert once["overall"]["interval"] == thrice["overall"]["interval"] == [0.0945, 0.9055]  # Wilson, 1 of 2
    assert once["overall"]["standard_deviation"] is None


def test_pass_at_k_is_unbiased_and_of_the_valid_episodes_of_a_task():
    record = build(results())
    # a: 2 of 3, b: 1 of 2, c: 0 of 2
    assert record["pass_at_k"]["1"] == {"rate": round((2 / 3 + 1 / 2 + 0) / 3, 4), "tasks": 3}
    assert record["pass_at_k"]["2"] == {"rate": round((1 + 1 + 0) / 3, 4), "tasks": 3}
    assert record["pass_at_k"]["3"] == {"rate": 1.0, "tasks": 1}


def test_uneven_repeats_by_hand():
    tasks = {"a": (S, S, S), "b": (S, U, B), "c": (F, F, S), "d": (U, U, U), "e": (B, B, B), "f": (S, F, U)}
    record = build(results(tasks))
    assert [record[name] for name in ("episodes", "valid", "successes", "blocked", "failed")] == [18, 11, 6, 4, 3]
    overall, valid = record["overall"], record["valid_only"]
    # (1 + 1/3 + 1/3 + 0 + 0 + 1/3) / 6, and (1 + 1/2 + 1 + 0 + 1/2) / 5
    assert (overall["rate"], overall["interval"]) == (0.3333, [0.0968, 0.7])  # Wilson, 2 of 6
    assert (valid["rate"], valid["interval"]) == (0.6, [0.2307, 0.8824])  # Wilson, 3 of 5
    assert (overall["by_repeat"], overall["mean"]) == ([0.5, 0.1667, 0.3333], 0.3333)
    assert (valid["by_repeat"], valid["mean"]) == ([0.75, 0.3333, 0.5], 0.5278)
    assert {k: tuple(of.values()) for k, of in record["pass_at_k"].items()} == {
        "1": (0.6, 5),
        "2": (0.75, 4),  # a 1, b 1, d 0, f 1
        "3": (0.5, 2),  # a 1, d 0
    }


def test_sites_bands_and_tasks():
    record = build(results())
    assert {site: of["successes"] for site, of in record["by_site"].items()} == {"a.com": 2, "b.com": 1, "c.com": 0}
    assert {band: of["episodes"] for band, of in record["by_band"].items()} == {"easy": 9}
    cases = {task["task"]: task for task in record["tasks"]}
    assert cases["b"]["results"] == ["unsolved", "success", "site_blocked"]
    assert cases["a"]["steps"] == [1, 2, 3]


def test_nothing_valid_is_no_rate():
    record = build(results({"a": (B, F)}))
    assert (record["overall"]["rate"], record["valid_only"]["rate"], record["pass_at_k"]) == (0.0, None, {})
    assert record["valid_only"]["interval"] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("prices", "costs"),
    [
        ({}, (None, None, None)),
        ({"policy": {"prompt": 1.0, "completion": 2.0}}, (6e-5, None, None)),
        ({"hub/policy": {"prompt": 1.0, "completion": 2.0}}, (6e-5, None, None)),
        (
            {"policy": {"prompt": 1.0, "completion": 2.0, "cached": 0.5}, "judge": {"prompt": 10.0, "completion": 0.0}},
            (5e-5, 1e-4, 1.5e-4),
        ),
    ],
)
def test_tokens_cost_what_the_price_table_says(prices, costs):
    result = results(
        {"a": (S,)},
        policy_tokens=TokenUsage(prompt=40, cached=20, completion=10),
        judge_requests=((("judge",), TokenUsage(prompt=10, completion=7)),),
        judge_calls=3,
    )
    spent = build(result, prices=prices)["spent"]
    assert tuple(spent[name] for name in ("policy_cost", "judge_cost", "cost")) == costs
    assert (spent["judge_calls"], spent["policy_tokens"]["cached"], spent["steps"]) == (3, 20, 1)


def test_what_was_spent_is_shared_among_steps_episodes_and_successes():
    # 9 episodes of 1 + 2 + 3 steps each three times, 3 successes
    tokens = TokenUsage(prompt=90, cached=50, completion=10)
    machine = {"policy_tokens": tokens, "cpu_seconds": 4.0, "gpu_seconds": 0.5, "judge_calls": 2}
    spent = build(results(**machine), prices={"policy": {"prompt": 1e6, "completion": 0.0}})["spent"]
    by_hand = {
        "cost": (810, 45, 90, 270),
        "tokens": (900, 50, 100, 300),
        "judge_calls": (18, 1, 2, 6),
        "cpu_seconds": (36, 2, 4, 12),
        "gpu_seconds": (4.5, 0.25, 0.5, 1.5),
    }
    for name, amounts in by_hand.items():
        keys = (name, *(f"{name}_per_{share}" for share in ("step", "episode", "success")))
        assert tuple(spent[key] for key in keys) == amounts


def test_each_model_of_a_judge_has_its_own_price():
    used = ((("judge",), TokenUsage(prompt=10)), (("small",), TokenUsage(prompt=100)))
    record = results({"a": (S, U)}, judge_requests=used, judge_calls=2)
    judge, small = {"prompt": 10.0, "completion": 0.0}, {"prompt": 1.0, "completion": 0.0}
    spent = build(record, prices={"judge": judge, "small": small})["spent"]
    assert (spent["judge_cost"], spent["judge_tokens"]["prompt"]) == (4e-4, 220)  # 2 * (10 * 10 + 100 * 1) / 1e6
    assert build(record, prices={"judge": judge})["spent"]["judge_cost"] is None


def test_without_a_price_for_cached_tokens_they_cost_as_others():
    tokens = TokenUsage(prompt=1_000_000, cached=400_000, completion=0)
    assert (
        CostSettings.model_validate({"prices": {"m": {"prompt": 3.0, "completion": 9.0}}}).price(("m",), tokens) == 3.0
    )
