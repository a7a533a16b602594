"""The policy's tokens of a batch of episodes, in the order in which they were produced, and what came of them.

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
    shape: tuple[int, int]
    """(B, T)."""

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

    def flat(self, padded: torch.Tensor) -> torch.Tensor:
        """Return the K values of [B, T] that stand at the tokens."""
        return padded[self.row, self.column]

    def before(self, padded: torch.Tensor) -> torch.Tensor:
        """Return the K values of [B, T] that stand one position before the tokens.

        That is where a model has read everything but the token itself: its prediction of the token, and the only value
        that a baseline may use.
        """
        return padded[self.row, self.column - 1]

    def padded(self, values: torch.Tensor) -> torch.Tensor:
        """Return K values as [B, T], 0 elsewhere."""
        return values.new_zeros(self.shape).index_put((self.row, self.column), values)

    def mask(self) -> torch.Tensor:
        """Return [B, T] bool: the tokens that are trained."""
        return self.padded(torch.ones_like(self.row)).bool()

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return [N] float64: the sum of K values over each trajectory."""
        sums = torch.zeros(len(self.reward), dtype=torch.float64, device=values.device)
        return sums.index_add(0, self.trajectory, values.double())


def collect_experience(
    mask: torch.Tensor,
    reward: torch.Tensor,
    group: torch.Tensor,
    *,
    trajectory: torch.Tensor | None = None,
    step: torch.Tensor | None = None,
) -> Experience:
    """Collect the tokens to train.

    `mask` [B, T] is true on what the policy produced, its stop token included. `reward` [N] is NaN where an episode
    failed: it is then left out, of its group's statistics too. `group` [N] may hold any integers. `trajectory` [B] is
    the number of each row's trajectory (without it, row i is trajectory i); `step` [B] orders the rows of one
    trajectory (without it, they are in order). Raises `ValueError` for contradictory input.
    """
    rows = torch.arange(len(mask), device=mask.device)
    trajectory = rows if trajectory is None else trajectory.to(mask.device)
    step = rows if step is None else step.to(mask.device)
    reward = reward.to(mask.device, torch.float64)
    mask = mask.bool()
    _check(mask, reward, group, trajectory, step)
    order = torch.argsort(step, stable=True)
    order = order[torch.argsort(trajectory[order], stable=True)]
    kept = mask & ~reward.isnan()[trajectory][:, None]
    place, column = kept[order].nonzero(as_tuple=True)
    groups = torch.unique(group.to(mask.device), return_inverse=True)[1]
    row = order[place]
    return Experience(row, column, trajectory[row], reward, groups, (mask.shape[0], mask.shape[1]))


def _check(
    mask: torch.Tensor, reward: torch.Tensor, group: torch.Tensor, trajectory: torch.Tensor, step: torch.Tensor
) -> None:
    count = len(reward)
    if len(group) != count:
        raise ValueError(f"{count} rewards, but {len(group)} groups")
    if len(trajectory) != len(mask) or len(step) != len(mask):
        raise ValueError(f"{len(mask)} rows, but {len(trajectory)} trajectory numbers and {len(step)} step numbers")
    if len(trajectory) and not 0 <= int(trajectory.min()) <= int(trajectory.max()) < count:
        raise ValueError(f"trajectory numbers must be from 0 to {count - 1}, one a reward")
    if bool(reward.isinf().any()):
        raise ValueError(f"the reward of trajectory {int(reward.isinf().nonzero()[0])} is infinite")
    if len(torch.unique(torch.stack([trajectory, step]), dim=1).T) != len(trajectory):
        raise ValueError("two rows are the same step of the same trajectory")
    if bool(mask[:, :1].any()):
        raise ValueError(
            f"row {int(mask[:, 0].nonzero()[0])}: its first token can't be the policy's: nothing led to it"
        )
    tokens = torch.zeros_like(reward).index_add(0, trajectory, mask.sum(1).to(reward.dtype))
    if bool(((tokens == 0) & ~reward.isnan()).any()):
        empty = int(((tokens == 0) & ~reward.isnan()).nonzero()[0])
        raise ValueError(f"trajectory {empty} has a reward, but the policy produced no token in it")


def accumulate(values: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return [K] float64: y[k] = values[k] + factor[k] · y[k + 1], from the last token back.

    A factor of 0 starts anew. In log2(K) passes over all tokens rather than K steps.
    """
    sums, factors, reach = values.double(), factor.double(), 1
    while reach < len(sums):
        sums = torch.cat([sums[:-reach] + factors[:-reach] * sums[reach:], sums[-reach:]])
        factors = torch.cat([factors[:-reach] * factors[reach:], torch.zeros_like(factors[:reach])])
        reach *= 2
    return sums


def whiten(values: torch.Tensor, epsilon: float = 1e-8) -> torch.Tensor:
    """Return values with mean 0 and variance 1: (x - mean) / sqrt(variance + epsilon), variance with K - 1.

    Over all tokens of the batch, before it is divided among processes.
    """
    centred = values.double() - values.double().mean()
    variance = centred.square().sum() / max(1, len(values) - 1)
    return centred * torch.rsqrt(variance + epsilon)


def require(tensor: torch.Tensor | None, option: str, what: str) -> torch.Tensor:
    """Return the tensor. Raises `ValueError` when it is missing, naming the option that asks for it."""
    if tensor is None:
        raise ValueError(f"{option} needs {what}")
    return tensor
