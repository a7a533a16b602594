"""KL estimates between policy and reference from sampled tokens, for the loss or the reward."""

from __future__ import annotations

import torch

from webgym_cli.config.rl import KlControlSettings, KlType

# Log-ratios are clamped to this before exp, which would overflow.
LIMIT = 20.0


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


def next_coefficient(control: KlControlSettings, kl: float, sequences: int) -> float:
    """Return the coefficient after a batch: coef · (1 + clip(kl / target - 1, ±0.2) · sequences / horizon).

    `kl` is the batch's mean: over the sequences, of each sequence's mean a token (Ziegler et al. 2019, arXiv
    1909.08593). A fixed coefficient is returned unchanged.
    """
    if control.type == "fixed":
        return control.kl_coef
    error = min(0.2, max(-0.2, kl / control.target_kl - 1))
    return control.kl_coef * (1 + error * sequences / control.horizon)
