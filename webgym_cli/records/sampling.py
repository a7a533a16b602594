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
    """Trainings behind these weights; 0: the base model."""
    digest: str
    """SHA-256 of the weights as they were served, or the name of a model on the hub."""


class Sampling(Record):
    """The distribution that a policy's tokens were sampled from, beside its weights, as the server was asked for it."""

    temperature: float = Field(ge=0)
    """0: nothing was sampled, each token is the likeliest one."""
    top_k: int = Field(default=-1, ge=-1)
    """Of so many of the likeliest tokens; -1: of all. A server that is not vLLM is not asked for it."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Of the likeliest tokens that have this probability together; 1: of all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Of the tokens that have this share of the likeliest one's probability; 0: of all. Asked for as `top_k` is."""
    logprobs: Logprobs | None = None
    """What the stored log-probabilities are of: `processed`, this distribution; `raw`, the model's own, before all of
    this; None: not known, for the server is not ours."""

    @property
    def greedy(self) -> bool:
        """Whether nothing was sampled."""
        return self.temperature == 0

    @property
    def untouched(self) -> bool:
        """Whether the model's own distribution was sampled from: raw log-probabilities are then of it too."""
        return (self.temperature, self.top_k, self.top_p, self.min_p) == (1.0, -1, 1.0, 0.0)
