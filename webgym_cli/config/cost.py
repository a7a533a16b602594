"""Settings `cost`: what tokens cost. The text under a field is its help."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class TokenPrices(ConfigSection):
    """Prices of one model's tokens."""

    prompt: float = Field(ge=0)
    """Price of a million prompt tokens, images included."""
    completion: float = Field(ge=0)
    """Price of a million tokens of the answers."""
    cached: float | None = Field(default=None, ge=0)
    """Price of a million prompt tokens that the server had cached; null: `prompt`."""


class CostSettings(ConfigSection):
    """What tokens cost."""

    prices: dict[str, TokenPrices] = Field(default_factory=dict)
    """Prices by model name, as in `judge.model`: `{"gpt-4o": {"prompt": 2.5, "completion": 10, "cached": 1.25}}`. The
    cost of a model without a price is unknown."""
