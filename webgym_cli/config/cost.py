"""Settings `cost`: what tokens cost, and how much a run may spend. The text under a field is its help."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.usage import TokenUsage
from webgym_cli.util.optional import known_or


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


def share_cost(costs: Mapping[str, float | None], steps: int, episodes: int, successes: int) -> dict[str, float | None]:
    """Return the costs with their sum, and the sum by step, episode and success; None where a price is missing."""
    total = sum_costs(costs.values())
    counts = {"cost_per_step": steps, "cost_per_episode": episodes, "cost_per_success": successes}
    shares = {name: None if total is None or not count else round(total / count, 6) for name, count in counts.items()}
    return {**costs, "cost": total, **shares}
