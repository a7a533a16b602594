"""What a run has spent: steps, tokens and their cost, of the policy, the judge and the generator of tasks."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import TYPE_CHECKING, Any

from webgym_cli.config.cost import CostSettings, share_amounts, sum_costs
from webgym_cli.config.model import Settings
from webgym_cli.jobs.budget import Budget
from webgym_cli.records.series import is_served_elsewhere
from webgym_cli.records.stored_events import TrainingEvent
from webgym_cli.records.usage import Requests, TokenUsage
from webgym_cli.store.metrics import read_batches, read_events, read_records
from webgym_cli.store.run import RunDir

if TYPE_CHECKING:  # DuckDB and Arrow take 100 MB, and a rollout without limits has no use for them
    from webgym_cli.store.index.query import Index

_TOKENS = "{'prompt': sum(prompt_tokens), 'cached': sum(cached_tokens), 'completion': sum(completion_tokens)} AS tokens"
# Over all policies: an episode may have attempts at two servers, which `_POLICY` lists apart.
_COUNTS = """SELECT count(DISTINCT (split, iteration, episode)) AS episodes, count(*) FILTER (success) AS successes,
    coalesce(sum(steps), 0)::BIGINT AS steps FROM trajectories"""
_POLICY = f"""SELECT policy AS model, sum(cpu_seconds) AS cpu_seconds, sum(gpu_seconds) AS gpu_seconds,
    {_TOKENS} FROM trajectories GROUP BY 1 ORDER BY 1"""
_CALLS = """SELECT coalesce(sum(calls), 0)::BIGINT AS calls, coalesce(max(calls), 0) AS largest
    FROM judgements WHERE source = 'judge'"""
_JUDGE = """SELECT used.key AS model, {'prompt': sum(used.value.prompt), 'cached': sum(used.value.cached),
    'completion': sum(used.value.completion)} AS tokens
    FROM (SELECT unnest(map_entries(model_tokens)) AS used FROM judgements WHERE source = 'judge')
    GROUP BY 1 ORDER BY 1"""


def read_spending(run: RunDir, settings: Settings, index: Index) -> dict[str, Any]:
    """Return steps, tokens, judge calls and costs of all commands of a run. A missing price makes a cost None."""
    acted, judged = list(index.rows(_POLICY)), list(index.rows(_JUDGE))
    judge, counts = index.one(_CALLS), index.one(_COUNTS)
    by_policy = [(_name_models(row["model"], settings), _parse_tokens(row["tokens"])) for row in acted]
    by_judge = [((row["model"],), _parse_tokens(row["tokens"])) for row in judged]
    generated = [
        ((event.get("model", ""),), _parse_tokens(event.get("tokens") or {}))
        for event in read_events(run, "generator_tokens", "generate")  # the latter have tokens in older runs
    ]
    trainings = list(read_records(run, TrainingEvent))
    counts["trained_trajectories"] = _count_trained(run, {one.iteration for one in trainings})
    costs = {
        "policy_cost": _sum_costs(settings.cost, by_policy),
        "judge_cost": _sum_costs(settings.cost, by_judge),
        "generator_cost": _sum_costs(settings.cost, generated),
    }
    tokens = {"policy": _sum_tokens(by_policy), "judge": _sum_tokens(by_judge), "generator": _sum_tokens(generated)}
    amounts = {
        "judge_calls": judge["calls"],
        "tokens": sum(one.total for one in tokens.values()),
        "cpu_seconds": sum(row["cpu_seconds"] for row in acted) + sum(one.cpu_seconds for one in trainings),
        "gpu_seconds": sum(row["gpu_seconds"] for row in acted) + sum(one.gpu_seconds for one in trainings),
    }
    return {
        **counts,
        "largest_judgement": judge["largest"],
        **{f"{name}_tokens": one.model_dump() for name, one in tokens.items()},
        **share_amounts(costs, amounts, counts),
    }


def _count_trained(run: RunDir, iterations: Collection[int]) -> int:
    """Return the number of trajectories that finished trainings used for the first time."""
    batches = (batch for parent, batch in read_batches(run).items() if parent in iterations)
    return sum(len(group.trajectories) for group in chain.from_iterable(batch.groups for batch in batches))


def open_budget(run: RunDir, settings: Settings) -> Budget:
    """Return the run's budget, with what its earlier commands spent, on its survey too.

    A run without limits is not read. Raises `SettingsError` for a limit without prices.
    """
    cost = settings.cost
    cost.require_prices()
    if cost.max_cost is None and cost.max_judge_calls is None:
        return Budget()
    from webgym_cli.store.index.query import open_index

    budget = Budget(cost, str(run.root))
    for one in (run, run.survey):
        if one is run or one.exists:
            with open_index(one) as index:
                spent = read_spending(one, settings, index)
            budget.spent += sum(spent[name] or 0.0 for name in ("policy_cost", "judge_cost", "generator_cost"))
            budget.judge_calls += spent["judge_calls"]
            budget.largest_judgement = max(budget.largest_judgement, spent["largest_judgement"])
    return budget


def _parse_tokens(counts: dict[str, Any]) -> TokenUsage:
    return TokenUsage.model_validate({name: int(count or 0) for name, count in counts.items()})


def _name_models(policy: str, settings: Settings) -> tuple[str, ...]:
    """Return the names under which a policy that acted may have a price; servers by URL may have had another model."""
    if is_served_elsewhere(policy):
        return policy.partition(" at http")[0], settings.policy_config.base_model
    return settings.policy_models


def _sum_tokens(requests: Requests) -> TokenUsage:
    return sum((tokens for _, tokens in requests), TokenUsage())


def _sum_costs(cost: CostSettings, requests: Requests) -> float | None:
    return sum_costs([cost.price(models, tokens) for models, tokens in requests])
