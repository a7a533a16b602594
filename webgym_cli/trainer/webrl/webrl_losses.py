"""WebRL's objectives (Qi et al. 2024, arXiv 2411.02337), the paper's and those of its released code, which differ.

Its unit is the action: one step of an episode, n of them in a batch. Log-probs are sums over an action's tokens. Losses
are given an action each: what is trained is their mean, whichever way the actions are divided.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def action_sums(values: torch.Tensor, action: torch.Tensor, count: int) -> torch.Tensor:
    """Return [n]: the sums of [K] token values over the actions; `action` [K] is below `count` (n)."""
    return values.new_zeros(count).index_add(0, action, values)


def success_probability(*heads: torch.Tensor) -> torch.Tensor:
    """Return [n]: the critic's V, the least probability of success (class 1) of its heads' logits [n, 2]."""
    return torch.stack([head.float().softmax(-1)[:, 1] for head in heads]).amin(0)


def critic_loss(success: torch.Tensor, *heads: torch.Tensor) -> torch.Tensor:
    """Return [n]: the sum over the heads of the cross-entropy of their logits [n, 2] with `success` [n] (eq. 8)."""
    target = success.long()
    losses = [functional.cross_entropy(head.float(), target, reduction="none") for head in heads]
    return torch.stack(losses).sum(0)


def paper_advantage(
    reward: torch.Tensor, value: torch.Tensor, next_value: torch.Tensor, final: torch.Tensor, lam: float = 0.5
) -> torch.Tensor:
    """Return [n]: lam · (r + V(s') - V(s)) + (1 - lam) · (r_T - V(s)) (eq. 9).

    `reward` [n] is the step's own: 0 before the last. `next_value` [n] is 0 after the last. `final` [n] is the
    episode's outcome r_T.
    """
    return lam * (reward + next_value - value) + (1 - lam) * (final - value)


def paper_loss(
    log_probs: torch.Tensor, reference: torch.Tensor, advantage: torch.Tensor, beta: float = 1.0
) -> torch.Tensor:
    """Return [n]: (beta · log(policy / reference) - A)² (eq. 6); all [n], logs summed.

    For beta = 0, which leaves nothing to learn there, the limit of its gradient over 2 · beta: that of -A · log-prob.
    """
    if beta == 0:
        return -advantage.detach() * log_probs
    return (beta * (log_probs - reference) - advantage.detach()).square()


def monte_carlo(reward: torch.Tensor, left: torch.Tensor, gamma: float = 0.9) -> torch.Tensor:
    """Return [n]: the discounted sum of a reward that each of the `left` [n] steps brings, this one included."""
    if gamma == 1:
        return reward * left
    return reward * (1 - gamma**left) / (1 - gamma)


def released_advantage(
    value: torch.Tensor, next_value: torch.Tensor, reward: torch.Tensor, monte_carlo: torch.Tensor
) -> torch.Tensor:
    """Return [n]: clip(V(s') - V(s) - 0.05 + reward + Monte Carlo return, ±1), as the released code has it.

    There `reward` is the episode's on each of its steps, and the return sums those.
    """
    return (next_value - value - 0.05 + reward + monte_carlo).clamp(-1, 1)


def released_loss(
    log_probs: torch.Tensor, reference: torch.Tensor, lengths: torch.Tensor, advantage: torch.Tensor
) -> torch.Tensor:
    """Return [n]: the released code's actor loss; all [n], logs summed, `lengths` the actions' tokens.

    Only actions with A ≥ 0 count, all with the target 1: SmoothL1(b · x, 1) / b, where x is the log-ratio a token and
    b the smaller of 1 / |x| and 5 (1 where the reference gives the action's tokens a geometric mean probability below
    0.8), without gradient. The others are 0, and count in the mean. The released code divides by the tokens of all
    positive actions of a micro-batch, and ran with one action in each: this is that case.
    """
    chosen = (advantage >= 0).to(log_probs.dtype)
    ratio = (log_probs - reference) / lengths
    confident = torch.exp(reference / lengths) >= 0.8
    wanted = torch.where(confident, 5.0, 1.0)
    beta = torch.minimum(wanted, ratio.abs().reciprocal()).detach()
    target = torch.ones_like(ratio)
    return functional.smooth_l1_loss(beta * ratio, target, reduction="none") / beta * chosen
