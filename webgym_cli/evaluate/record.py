"""Record of an evaluation: its conditions, its numbers, and the result of every task. Pure: no clock, no environment.

The same stored episodes give the same bytes, so a record that was interrupted is written equal by the next command.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from webgym_cli.config.cost import CostSettings, share_amounts, sum_costs
from webgym_cli.evaluate.results import EpisodeEnd, EpisodeResult, EpisodeSpending
from webgym_cli.records.statistics import PassRate, deviation, mean, mean_pass_at_k, round_wilson
from webgym_cli.records.usage import TokenUsage
from webgym_cli.util.optional import group_by

SCHEMA = 1
# Results by which episodes say something about the policy.
VALID = (EpisodeEnd.SUCCESS, EpisodeEnd.UNSOLVED)


def build_record(
    conditions: Mapping[str, Any], results: Sequence[EpisodeResult], cost: CostSettings, policy_models: Collection[str]
) -> dict[str, Any]:
    """Return the record as one JSON object. `policy_models`: the names under which the policy may have a price."""
    return {
        "schema": SCHEMA,
        "conditions": dict(conditions),
        **count_results(results),
        "judged": sum(one.spent.judge_calls > 0 for one in results),  # the environment scored the others itself
        "failures": dict(sorted(Counter(one.failure for one in results if one.failure).items())),
        "pass_at_k": _compute_pass_rates(results),
        "by_site": _count_by(results, lambda one: one.site),
        "by_band": _count_by(results, lambda one: one.episode.task.band.value),
        "spent": _sum_spent(results, cost, policy_models),
        "tasks": [_describe_case(case) for _, case in sorted(_group_cases(results).items())],
    }


def count_results(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Return counts and rates of some episodes: `overall` blocked and failed ones count as not solved."""
    ends = Counter(one.end for one in results)
    return {
        "episodes": len(results),
        "valid": sum(ends[end] for end in VALID),
        "successes": ends[EpisodeEnd.SUCCESS],
        "blocked": ends[EpisodeEnd.BLOCKED],
        "failed": ends[EpisodeEnd.FAILED],
        "overall": _compute_rate(results),
        "valid_only": _compute_rate([one for one in results if one.end in VALID]),
    }


def _compute_rate(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Return the success rate, None without an episode. Each task counts once, with the mean of its repeats.

    The interval is Wilson's, 95 %, of as many trials as there are tasks: repeats of a task are no independent trials.
    `mean` and `standard_deviation` (n - 1) are those of the rates of the repeats.
    """
    tasks = [_mean_success(case) for case in _group_cases(results).values()]
    repeats = sorted({one.episode.repeat for one in results})
    by_repeat = [_mean_success([one for one in results if one.episode.repeat == number]) for number in repeats]
    return {
        "rate": mean(tasks),
        "interval": round_wilson(sum(tasks), len(tasks)),
        "by_repeat": [round(rate, 4) for rate in by_repeat],
        "mean": mean(by_repeat),
        "standard_deviation": deviation(by_repeat),
    }


def _mean_success(results: Sequence[EpisodeResult]) -> float:
    return fmean(one.end is EpisodeEnd.SUCCESS for one in results)


def _group_cases(results: Iterable[EpisodeResult]) -> dict[tuple[str, int], list[EpisodeResult]]:
    """Return the repeats of each task and seed, in order."""
    cases = group_by(results, lambda one: (one.episode.task.key, one.episode.seed))
    return {key: sorted(case, key=lambda one: one.episode.repeat) for key, case in cases.items()}


def _count_by(results: Sequence[EpisodeResult], name: Callable[[EpisodeResult], str]) -> dict[str, dict[str, Any]]:
    return {group: count_results(members) for group, members in sorted(group_by(results, name).items())}


def _compute_pass_rates(results: Sequence[EpisodeResult]) -> dict[str, PassRate]:
    """Return the unbiased pass@k for k from 1 to the number of repeats, over the tasks with k valid episodes."""
    cases = [[one.end for one in case if one.end in VALID] for case in _group_cases(results).values()]
    tallies = Counter((len(ends), ends.count(EpisodeEnd.SUCCESS)) for ends in cases)
    return {str(k): mean_pass_at_k(tallies, k) for k in range(1, max(map(len, cases), default=0) + 1)}


def _describe_case(case: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Return one task with the results of its repeats: what another record is paired with."""
    first = case[0]
    return {
        "key": first.episode.task.key,
        "seed": first.episode.seed,
        "task": first.episode.task.id,
        "site": first.site,
        "band": first.episode.task.band.value,
        "results": [one.failure or one.end.value for one in case],
        "steps": [one.steps for one in case],
    }


def _sum_spent(results: Sequence[EpisodeResult], cost: CostSettings, policy_models: Collection[str]) -> dict[str, Any]:
    """Return steps, time, tokens and cost of all attempts. Times are those that were stored with the episodes."""
    spent = sum((one.spent for one in results), EpisodeSpending())
    judged: defaultdict[tuple[str, ...], TokenUsage] = defaultdict(TokenUsage)
    for models, tokens in spent.judge_requests:
        judged[models] += tokens
    costs = {
        "policy_cost": cost.price(policy_models, spent.policy_tokens),
        "judge_cost": sum_costs([cost.price(models, tokens) for models, tokens in judged.items()]),
    }
    successes = sum(one.end is EpisodeEnd.SUCCESS for one in results)
    counts = {"steps": spent.steps, "episodes": len(results), "successes": successes}
    judge_tokens = sum(judged.values(), TokenUsage())
    amounts = {
        "judge_calls": spent.judge_calls,
        "tokens": (spent.policy_tokens + judge_tokens).total,
        "cpu_seconds": spent.cpu_seconds,
        "gpu_seconds": spent.gpu_seconds,
    }
    seconds = ("seconds", "policy_seconds", "environment_seconds", "judge_seconds")
    rolled = [one for one in results if one.end in VALID]
    return {
        "steps": spent.steps,
        "mean_steps": mean((one.steps for one in rolled), 3),
        **{name: round(getattr(spent, name), 3) for name in seconds},
        "policy_tokens": spent.policy_tokens.model_dump(),
        "judge_tokens": judge_tokens.model_dump(),
        **share_amounts(costs, amounts, counts),
    }
