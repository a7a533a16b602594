"""Distances of policies on sampled tokens: KL estimates for the loss or the reward, and importance weights."""

from __future__ import annotations

import torch

from webgym_cli.config.rl import KlControlSettings, KlType, RolloutCorrectionSettings

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


def importance_weights(
    old_log_probs: torch.Tensor, rollout_log_probs: torch.Tensor, row: torch.Tensor, options: RolloutCorrectionSettings
) -> tuple[torch.Tensor, float]:
    """Return the weights [K], exp(old_log_probs - rollout_log_probs), and the share of them that the cap changed.

    The tokens were sampled from the behaviour policy: an older version, or the same weights in the server's arithmetic.
    The clipped objective uses the proximal policy: the trainer's own at the start of the update. The ratio of the two
    weights each token's loss, so that its expectation is unbiased; a cap bounds the variance (truncated importance
    sampling, Ionides 2008; for language models Espeholt et al. 2018, arXiv 1802.01561, and decoupled PPO, 2110.00641).
    `rollout_log_probs` [K] are those of the distribution that was sampled from: after temperature and truncation.
    `row` [K] is the row of each token. Without rollout log-probs the options must be `none`.
    """
    if options.rollout_is == "none":
        return torch.ones_like(old_log_probs), 0.0
    difference = (old_log_probs - rollout_log_probs).detach()
    if options.rollout_is == "sequence":
        names, place = torch.unique(row, return_inverse=True)
        difference = difference.new_zeros(len(names)).index_add(0, place, difference)[place]
    ratio = torch.exp(difference.clamp(-LIMIT, LIMIT))
    cap = options.rollout_is_threshold
    outside = ratio > cap
    if options.rollout_is_mode == "mask":
        outside |= ratio < 1 / cap
        weights = ratio.masked_fill(outside, 0.0)
    else:
        weights = ratio.clamp(max=cap)
    return weights, float(outside.float().mean()) if len(ratio) else 0.0


def mismatch_by_staleness(
    old_log_probs: torch.Tensor, rollout_log_probs: torch.Tensor, weights: torch.Tensor, staleness: torch.Tensor
) -> dict[str, float]:
    """Return the divergence of the sampler's policy from the trainer's for each staleness, in trainings (-1: unknown).

    All arguments are [K]. `kl`: mean of r - log r - 1 with r = exp(old - rollout), the estimate k3 of
    KL(rollout || old) in nats a token (http://joschu.net/blog/kl-approx.html). `ess`: effective share of the tokens,
    (sum w)^2 / (n * sum w^2). At staleness 0 the two differ only numerically.
    """
    difference = (old_log_probs - rollout_log_probs).detach().double().clamp(-LIMIT, LIMIT)
    kl = difference.exp() - difference - 1
    metrics: dict[str, float] = {}
    for age in staleness[staleness >= 0].unique().tolist():
        of_age = staleness == age
        w = weights[of_age].double()
        name = f"rollout_corr/staleness_{age}"
        metrics[f"{name}/kl"] = float(kl[of_age].mean())
        metrics[f"{name}/ess"] = float(w.sum() ** 2 / (len(w) * (w**2).sum()).clamp(min=1e-12))
        metrics[f"{name}/tokens"] = float(len(w))
    return metrics
