"""The policy's tokens of a batch of episodes, in the order of their generation, with rewards and groups.

Shapes, here and in the other files: B rows of T positions go through the model; a row is a whole trajectory (tools) or
one step of it (web pages); N trajectories; K tokens that the policy produced and that are trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Experience:
    """K tokens, ordered by trajectory, step and position. Tokens of failed episodes aren't among them."""

    row: torch.Tensor
    """[K] long: the row of each token."""
    column: torch.Tensor
    """[K] long: its position in the row, 1 or more."""
    trajectory: torch.Tensor
    """[K] long: the number of its trajectory, below N, ascending."""
    reward: torch.Tensor
    """[N] float64: the episodes' rewards, NaN where an episode failed."""
    group: torch.Tensor
    """[N] long: 0, 1, ...; trajectories of one group tried the same task from the same start."""

    @property
    def valid(self) -> torch.Tensor:
        """[N] bool: whether the episode has a reward."""
        return ~self.reward.isnan()

    @property
    def last(self) -> torch.Tensor:
        """[K] bool: whether the token is the last of its trajectory."""
        ends = torch.ones_like(self.trajectory, dtype=torch.bool)
        ends[:-1] = self.trajectory[1:] != self.trajectory[:-1]
        return ends

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return [N] float64: the sum of K values over each trajectory."""
        sums = torch.zeros(len(self.reward), dtype=torch.float64, device=values.device)
        return sums.index_add(0, self.trajectory, values.double())


def accumulate(values: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return [K] float64: y[k] = values[k] + factor[k] · y[k + 1], from the last token back.

    A factor of 0 restarts the sum. Computed as a scan of log2(K) vectorised passes instead of K steps.
    """
    sums, factors, reach = values.double(), factor.double(), 1
    while reach < len(sums):
        sums = torch.cat([sums[:-reach] + factors[:-reach] * sums[reach:], sums[-reach:]])
        factors = torch.cat([factors[:-reach] * factors[reach:], torch.zeros_like(factors[:reach])])
        reach *= 2
    return sums


def whiten(values: torch.Tensor) -> torch.Tensor:
    """Return values with mean 0 and variance 1: (x - mean) / sqrt(variance + 1e-8), variance with K - 1.

    Over all tokens of the batch, before it is divided among processes.
    """
    centred = values.double() - values.double().mean()
    variance = centred.square().sum() / max(1, len(values) - 1)
    return centred * torch.rsqrt(variance + 1e-8)


def require(tensor: torch.Tensor | None, option: str, what: str) -> torch.Tensor:
    """Return the tensor. Raises `ValueError` when it is missing, naming the option that asks for it."""
    if tensor is None:
        raise ValueError(f"{option} needs {what}")
    return tensor
