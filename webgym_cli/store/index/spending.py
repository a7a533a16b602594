"""What a run has spent: steps, tokens and their cost, of the policy, the judge and the generator of tasks."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from webgym_cli.config.cost import CostSettings, share_cost
from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.jobs.budget import Budget
from webgym_cli.records.usage import TokenUsage
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir

if TYPE_CHECKING:  # DuckDB and Arrow take 100 MB, and a rollout without limits has no use for them
    from webgym_cli.store.index.query import Index

_TOKENS = "{'prompt': sum(prompt_tokens), 'cached': sum(cached_tokens), 'completion': sum(completion_tokens)} AS tokens"
_POLICY = f"""SELECT count(*) AS episodes, count(*) FILTER (success) AS successes,
    coalesce(sum(steps), 0)::BIGINT AS steps, {_TOKENS} FROM trajectories"""
_JUDGE = f"""SELECT CASE WHEN models = 1 THEN model END AS model, sum(calls)::BIGINT AS calls,
    max(calls) AS largest, {_TOKENS} FROM judgements WHERE source = 'judge' GROUP BY 1 ORDER BY 1"""


def read_spending(run: RunDir, settings: Settings, index: Index) -> dict[str, Any]:
    """Return steps, tokens, judge calls and costs of all commands of a run. A missing price makes a cost None."""
    acted, judged = index.one(_POLICY), list(index.rows(_JUDGE))
    policy = _parse_tokens(acted["tokens"])
    by_judge = [((row["model"],), _parse_tokens(row["tokens"])) for row in judged]
    generated = [
        ((event.get("model", ""),), _parse_tokens(event.get("tokens") or {})) for event in read_events(run, "generate")
    ]
    costs = {
        "policy_cost": settings.cost.price(settings.policy_models, policy),
        "judge_cost": _sum_costs(settings.cost, by_judge),
        "generator_cost": _sum_costs(settings.cost, generated),
    }
    return {
        **{name: acted[name] for name in ("episodes", "successes", "steps")},
        "judge_calls": sum(row["calls"] for row in judged),
        "largest_judgement": max((row["largest"] for row in judged), default=0),
        "policy_tokens": policy.model_dump(),
        "judge_tokens": sum((tokens for _, tokens in by_judge), TokenUsage()).model_dump(),
        "generator_tokens": sum((tokens for _, tokens in generated), TokenUsage()).model_dump(),
        **share_cost(costs, acted["steps"], acted["episodes"], acted["successes"]),
    }


def open_budget(run: RunDir, settings: Settings) -> Budget:
    """Return the run's budget, with what its earlier commands spent, on its survey too.

    A run without limits is not read. Raises `SettingsError` for a limit without prices.
    """
    cost = settings.cost
    if cost.max_cost is None and cost.max_judge_calls is None:
        return Budget()
    if cost.max_cost is not None and not cost.prices:
        hint = """-s 'cost.prices={"MODEL": {"prompt": 2.5, "completion": 10}}'"""
        raise SettingsError("cost.max_cost: no model has a price, so that nothing would count", hint=hint)
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


def _sum_costs(cost: CostSettings, requests: Collection[tuple[tuple[str, ...], TokenUsage]]) -> float | None:
    costs = [cost.price(models, tokens) for models, tokens in requests]
    known = [one for one in costs if one is not None]
    return round(sum(known), 6) if len(known) == len(costs) else None
