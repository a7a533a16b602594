"""Sampling parameters and policy version of an episode's tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.records.base import Record

# Distribution of log-probabilities: the one that was sampled from, or the model's own before temperature, top_k,
# top_p and min_p.
Logprobs = Literal["processed", "raw"]


class PolicyVersion(Record):
    """Policy version (weights) that produced a response."""

    number: int = Field(ge=0)
    """Number of trainings that produced these weights; 0: the base model."""
    digest: str
    """SHA-256 of the served weights, or the name of a model on the Hub."""


class Sampling(Record):
    """The distribution from which a policy's tokens were sampled, as requested from the server."""

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
        """Whether decoding was greedy."""
        return self.temperature == 0

    @property
    def untouched(self) -> bool:
        """Whether the model's own distribution was sampled from, so that raw log-probabilities equal processed ones."""
        return self.temperature == 1 and not self.truncated

    @property
    def truncated(self) -> bool:
        """Whether some tokens can't be sampled."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0
