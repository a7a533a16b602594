"""Formulas of the built-in advantage estimators (`estimators.py`), on a whole batch.

Each takes token rewards [K] (`outcome`, minus a KL penalty if set) and returns [K] float64. Sources: GRPO (Shao et al.
2024, arXiv 2402.03300), RLOO (Ahmadian et al. 2024, 2402.14740), REINFORCE++ (Hu 2025, 2501.03262), ReMax (Li et al.
2023, 2310.10505), GAE (Schulman et al. 2015, 1506.02438), GiGPO (Feng et al. 2025, 2505.10978). All of a trajectory's
steps share its advantage, in however many rows they are, except with GiGPO. Compute advantages before a batch is
divided among processes: groups and whitening span the whole batch.
"""

from __future__ import annotations

import torch

from webgym_cli.config.estimators import ESTIMATORS
from webgym_cli.trainer.experience import Experience, accumulate, require, whiten
from webgym_cli.trainer.options import AlgorithmConfig
from webgym_cli.trainer.ppo.estimators import EstimatorInputs
from webgym_cli.util.optional import map_known


def estimate(
    tokens: Experience,
    rewards: torch.Tensor,
    options: AlgorithmConfig,
    *,
    values: torch.Tensor | None = None,
    greedy: torch.Tensor | None = None,
    anchors: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute the advantages and, with a critic, its returns by the estimator in `options`; [K] float32.

    `rewards` [K]: see `outcome`. `values` [K]: the critic's, read before each token. `greedy` [N]: see `remax`.
    `anchors` [K]: see `gigpo`. Raises `ValueError` when the estimator's own input is missing.
    """
    estimator, name = ESTIMATORS.find(options.adv_estimator), f"adv_estimator={options.adv_estimator}"
    if estimator.needs_critic:
        require(values, name, "the critic's values")
    if estimator.needs_anchors:
        require(anchors, name, "the steps' observations")
    if greedy is None:
        if estimator.needs_greedy:
            raise ValueError(f"{name} needs the rewards of greedy rollouts")
        greedy = torch.full_like(tokens.reward, torch.nan)
    estimates = estimator.estimate(EstimatorInputs(tokens, rewards, options, values, greedy, anchors))
    advantages, returns = estimates if isinstance(estimates, tuple) else (estimates, None)
    # a user's estimator may return anything; a wrong shape would broadcast silently in the loss
    for kind, tensor in {"advantages": advantages, "returns": returns}.items():
        if tensor is not None and tensor.shape != rewards.shape:
            raise ValueError(f"{name}: {kind} of shape {list(tensor.shape)}")
    if estimator.needs_critic and returns is None:
        raise ValueError(f"{name} returned no targets for its critic")
    if estimator.whitens:
        advantages = whiten(advantages)
    return advantages.float(), map_known(torch.Tensor.float, returns)


def outcome(tokens: Experience) -> torch.Tensor:
    """Return token rewards [K] float64: each episode's reward at its last token, 0 elsewhere."""
    return torch.where(tokens.last, tokens.reward[tokens.trajectory], 0.0)


def grpo(tokens: Experience, rewards: torch.Tensor, *, norm_adv_by_std_in_grpo: bool = True) -> torch.Tensor:
    """Return [K]: (R - mean) / (std + 1e-6) of the trajectory within its group.

    R is the sum of its token rewards, std is unbiased (n - 1). A group of one keeps R. Without the division: R - mean.
    """
    total = tokens.total(rewards)
    scaled, size = _normalize(total, tokens.group, tokens.valid, norm_adv_by_std_in_grpo)
    return torch.where(size > 1, scaled, total)[tokens.trajectory]


def gigpo(
    tokens: Experience,
    rewards: torch.Tensor,
    anchors: torch.Tensor,
    *,
    gamma: float = 1.0,
    step_advantage_w: float = 1.0,
    norm_adv_by_std_in_grpo: bool = True,
) -> torch.Tensor:
    """Return [K]: the episode's advantage (`grpo`) + step_advantage_w · the step's advantage.

    A step's is (G - mean) / (std + 1e-6) of its discounted return G within the steps of its group that answer the same
    observation, its anchor state (`anchors` [K]); 0 for a step without another at its anchor. Each row is one step:
    G = the row's reward + gamma · the next row's G.
    """
    _, place = torch.unique_consecutive(tokens.row, return_inverse=True)
    first = torch.ones_like(place, dtype=torch.bool)
    first[1:] = place[1:] != place[:-1]
    trajectory = tokens.trajectory[first]
    ends = torch.ones_like(trajectory, dtype=torch.bool)
    ends[:-1] = trajectory[1:] != trajectory[:-1]
    of_rows = torch.zeros(len(trajectory), dtype=torch.float64).index_add(0, place, rewards.double())
    returns = accumulate(of_rows, torch.full_like(of_rows, gamma).masked_fill(ends, 0.0))
    cells = torch.stack([tokens.group[trajectory], anchors[first]])
    cell = torch.unique(cells, dim=1, return_inverse=True)[1]
    scaled, size = _normalize(returns, cell, torch.ones_like(ends), norm_adv_by_std_in_grpo)
    steps = torch.where(size > 1, scaled, 0.0)[place]
    return grpo(tokens, rewards, norm_adv_by_std_in_grpo=norm_adv_by_std_in_grpo) + step_advantage_w * steps


def rloo(tokens: Experience, rewards: torch.Tensor) -> torch.Tensor:
    """Return [K]: R minus the mean of the others in the group, n / (n - 1) · (R - mean). A group of one keeps R."""
    total = tokens.total(rewards)
    mean, size = _group_mean(total, tokens.group, tokens.valid)
    others = size / (size - 1).clamp(min=1) * (total - mean)
    return torch.where(size > 1, others, total)[tokens.trajectory]


def reinforce_plus_plus(tokens: Experience, rewards: torch.Tensor, *, gamma: float = 1.0) -> torch.Tensor:
    """Return [K]: the discounted return-to-go of each token, before whitening.

    The discount counts every position of a row, observations between two turns included, and one from the last token
    of a step to the first of the next. Credit is carried across observations.
    """
    distance = torch.ones_like(tokens.column)
    same = tokens.row[1:] == tokens.row[:-1]
    distance[:-1] = torch.where(same, tokens.column[1:] - tokens.column[:-1], 1)
    factor = torch.pow(torch.full_like(rewards, gamma, dtype=torch.float64), distance)
    return accumulate(rewards, factor.masked_fill(tokens.last, 0.0))


def remax(tokens: Experience, rewards: torch.Tensor, greedy: torch.Tensor) -> torch.Tensor:
    """Return [K]: the return-to-go of each token, minus the reward of a greedy rollout of the same task.

    `greedy` [N] repeats a group's greedy reward for each of its trajectories. Where that rollout failed there is no
    baseline: give those trajectories no reward (NaN) when the experience is made. Raises `ValueError` otherwise.
    """
    baseline = greedy.to(rewards.device, torch.float64)
    if bool((tokens.valid & ~baseline.isfinite()).any()):
        missing = int((tokens.valid & ~baseline.isfinite()).nonzero()[0])
        raise ValueError(f"trajectory {missing} has no greedy rollout to compare with: leave it out of the batch")
    return accumulate(rewards, (~tokens.last).double()) - baseline[tokens.trajectory]


def gae(
    tokens: Experience, rewards: torch.Tensor, values: torch.Tensor, *, gamma: float = 1.0, lam: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return [K] advantages before whitening, and [K] returns for the critic (advantage + value).

    delta[k] = r[k] + gamma · V[k + 1] - V[k], A[k] = delta[k] + gamma · lam · A[k + 1]; V and A are 0 after the last
    token. `values` [K] are predicted before each token, so the baseline doesn't depend on it. k + 1 is the
    policy's next token: observations between the two are skipped.
    """
    values = values.double()
    following = torch.zeros_like(values)
    following[:-1] = values[1:]
    following = following.masked_fill(tokens.last, 0.0)
    delta = rewards.double() + gamma * following - values
    factor = torch.full_like(values, gamma * lam).masked_fill(tokens.last, 0.0)
    advantages = accumulate(delta, factor)
    return advantages, advantages + values


def _normalize(
    values: torch.Tensor, group: torch.Tensor, valid: torch.Tensor, by_std: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (value - mean) / (std + 1e-6) within each one's group, or value - mean, and the group's size; all [N]."""
    mean, size = _group_mean(values, group, valid)
    centred = values - mean
    squares, _ = _group_mean(centred.square(), group, valid)
    std = torch.sqrt(squares * size / (size - 1).clamp(min=1))
    return centred / (std + 1e-6) if by_std else centred, size


def _group_mean(values: torch.Tensor, group: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return [N] the mean over the valid members of each one's group, and [N] how many they are."""
    empty = torch.zeros_like(values)
    size = empty.index_add(0, group, valid.double())
    sums = empty.index_add(0, group, values.masked_fill(~valid, 0.0))
    return (sums / size.clamp(min=1))[group], size[group]
