"""Settings `cost`: what tokens cost, and how much a run may spend. The text under a field is its help."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.errors import SettingsError
from webgym_cli.records.usage import TokenUsage
from webgym_cli.util.optional import known_or

# Amounts by name; None: unknown.
Shares = dict[str, float | None]


class TokenPrices(ConfigSection):
    """Prices of one model's tokens."""

    prompt: float = Field(ge=0)
    """Price of a million prompt tokens, images included."""
    completion: float = Field(ge=0)
    """Price of a million tokens of the answers."""
    cached: float | None = Field(default=None, ge=0)
    """Price of a million prompt tokens that the server had cached; null: `prompt`."""


class CostSettings(ConfigSection):
    """What tokens cost, and how much a run may spend."""

    prices: dict[str, TokenPrices] = Field(default_factory=dict)
    """Prices by model name, as in `judge.model`: `{"gpt-4o": {"prompt": 2.5, "completion": 10, "cached": 1.25}}`. The
    cost of a model without a price is unknown."""
    max_cost: float | None = Field(default=None, gt=0)
    """Cost of all tokens of the run, by `prices`, at which a command ends with exit code 86; null: no limit. Models
    without a price count nothing."""
    max_judge_calls: int | None = Field(default=None, ge=1)
    """Number of requests to the judge, over all commands of the run, at which a command ends with exit code 86."""

    def require_prices(self) -> None:
        """Raise `SettingsError` for a limit of the cost that nothing would count towards."""
        if self.max_cost is not None and not self.prices:
            hint = """-s 'cost.prices={"MODEL": {"prompt": 2.5, "completion": 10}}'"""
            raise SettingsError("cost.max_cost: no model has a price, so that nothing would count", hint=hint)

    def price(self, models: Collection[str], tokens: TokenUsage) -> float | None:
        """Return the cost of tokens of a model under any of its names; None without a price. No tokens cost nothing."""
        if tokens == TokenUsage():
            return 0.0
        price = next((self.prices[name] for name in models if name in self.prices), None)
        if price is None:
            return None
        cached = known_or(price.cached, price.prompt)
        fresh = (tokens.prompt - tokens.cached) * price.prompt
        return round((fresh + tokens.cached * cached + tokens.completion * price.completion) / 1e6, 6)


def sum_costs(costs: Collection[float | None]) -> float | None:
    """Return the sum; None if one of the costs is unknown."""
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 6) if len(known) == len(costs) else None


# Names of the sums: the cost, and the amounts that `share_amounts` gets.
AMOUNTS = ("cost", "tokens", "judge_calls", "cpu_seconds", "gpu_seconds")
# What the amounts are divided by, and the key of its count.
SHARES = {"step": "steps", "episode": "episodes", "success": "successes", "trained_trajectory": "trained_trajectories"}


def list_shares(spent: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the sums as rows: name, in all, and by each of `SHARES`."""
    return [(name, spent[name], *(spent.get(f"{name}_per_{share}") for share in SHARES)) for name in AMOUNTS]


def share_amounts(costs: Mapping[str, float | None], amounts: Mapping[str, float], counts: Mapping[str, int]) -> Shares:
    """Return the costs with their sum, the amounts, and each of both by step, episode, success and so on.

    None where a price is missing, and where there is nothing to divide by.
    """
    sums: Shares = {"cost": sum_costs(costs.values()), **{name: round(one, 3) for name, one in amounts.items()}}
    shares: Shares = {}
    for share, count in ((share, counts[key]) for share, key in SHARES.items() if key in counts):
        for name, amount in sums.items():
            shares[f"{name}_per_{share}"] = None if amount is None or not count else round(amount / count, 6)
    return {**costs, **sums, **shares}
