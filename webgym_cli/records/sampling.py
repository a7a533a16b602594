"""What the tokens of an episode were sampled from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.records.base import Record

# What log-probabilities are of: the distribution that was sampled from, or the model's own before temperature, top_k,
# top_p and min_p.
Logprobs = Literal["processed", "raw"]


class PolicyVersion(Record):
    """Which weights of a run's policy produced a response."""

    number: int = Field(ge=0)
    """Number of trainings that produced these weights; 0: the base model."""
    digest: str
    """SHA-256 of the served weights, or the name of a model on the Hub."""


class Sampling(Record):
    """The distribution that a policy's tokens were sampled from, beside its weights, as the server was asked for it."""

    temperature: float = Field(ge=0)
    """Sampling temperature; 0: greedy."""
    top_k: int = Field(default=-1, ge=-1)
    """Number of most likely tokens that are sampled from; -1: all. Sent to vLLM only."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Cumulative probability of the tokens that are sampled from; 1: all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Minimum probability relative to the most likely token; 0: all. Sent to vLLM only."""
    logprobs: Logprobs | None = None
    """Distribution of the stored log-probabilities: `processed`: after temperature and truncation; `raw`: the model's
    own, before both; None: unknown, because webgym did not start the server."""

    @property
    def greedy(self) -> bool:
        """Whether nothing was sampled."""
        return self.temperature == 0

    @property
    def untouched(self) -> bool:
        """Whether the model's own distribution was sampled from: raw log-probabilities are then of it too."""
        return (self.temperature, self.top_k, self.top_p, self.min_p) == (1.0, -1, 1.0, 0.0)
