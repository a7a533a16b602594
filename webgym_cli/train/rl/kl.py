"""Distance from the reference policy, estimated from sampled tokens: in the loss or in the reward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

KlType = Literal["kl", "abs", "mse", "low_var_kl"]
LIMIT = 20.0
"""Log-ratios are kept within this before they become ratios: exp would overflow."""


def kl_estimate(log_probs: torch.Tensor, reference: torch.Tensor, kind: KlType) -> torch.Tensor:
    """Return [K]: an estimate of KL(policy, reference) at each token, in nats; d is the log-ratio policy to reference.

    `kl`: d (unbiased as a value; its gradient has mean 0, so as a loss it does nothing). `abs`: |d|. `mse`: d² / 2.
    `low_var_kl`: exp(-d) + d - 1, exponent within ±20, result within ±10. These are k1, k2 and k3 of Schulman's note
    "Approximating KL divergence" (2020).
    """
    distance = log_probs - reference
    if kind == "kl":
        return distance
    if kind == "abs":
        return distance.abs()
    if kind == "mse":
        return distance.square() / 2
    return (torch.exp((-distance).clamp(-LIMIT, LIMIT)) + distance - 1).clamp(-10, 10)


def penalised(
    rewards: torch.Tensor, log_probs: torch.Tensor, reference: torch.Tensor, kind: KlType, coefficient: float
) -> torch.Tensor:
    """Return [K] token rewards less coefficient · KL. The log-probs [K] are those of the policy that acts now."""
    return rewards - coefficient * kl_estimate(log_probs, reference, kind).detach()


@dataclass(frozen=True, slots=True)
class KlControl:
    """The coefficient of a KL in the reward, fixed or steered to a target (Ziegler et al. 2019, arXiv 1909.08593)."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """Whether `after` changes the coefficient."""
    kl_coef: float = 0.001
    """The coefficient now."""
    target_kl: float = 0.1
    """The KL that is aimed at, in nats a token."""
    horizon: int = 10_000
    """Sequences until the coefficient may have changed by about a fifth."""

    def __post_init__(self) -> None:
        if self.kl_coef < 0 or self.target_kl <= 0 or self.horizon <= 0:
            raise ValueError("kl_coef must be 0 or more, target_kl and horizon above 0")

    def after(self, kl: float, sequences: int) -> KlControl:
        """Return the control after a batch: coef · (1 + clip(kl / target - 1, ±0.2) · sequences / horizon).

        `kl` is the batch's mean: over the sequences, of each sequence's mean a token.
        """
        if self.type == "fixed":
            return self
        error = min(0.2, max(-0.2, kl / self.target_kl - 1))
        return replace(self, kl_coef=self.kl_coef * (1 + error * sequences / self.horizon))
