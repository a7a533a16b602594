"""The losses of policy and critic, and their metrics.

A mini-batch runs as micro-batches in several processes. Each loss here is the micro-batch's term of the mini-batch's
loss: summed over all of them it is exactly the loss of the whole, however it is divided. A mean therefore divides by
the mini-batch's `BatchNormalizer`, never by the micro-batch's own counts. Metrics are summed the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from webgym_cli.config.rl import ActorSettings, Aggregation
from webgym_cli.trainer.engine.batching import LossTerm
from webgym_cli.trainer.experience import require
from webgym_cli.trainer.ppo.kl import LIMIT, kl_estimate


@dataclass(frozen=True, slots=True)
class BatchNormalizer:
    """Token and sequence counts of a whole mini-batch, over all processes."""

    tokens: int
    """Trained tokens."""
    sequences: int
    """Rows with at least one trained token."""


def aggregate(
    values: torch.Tensor, row: torch.Tensor, mode: Aggregation, totals: BatchNormalizer, scale: int | None = None
) -> torch.Tensor:
    """Return the micro-batch's share of the mean over [K] values; `row` [K] is the row of each token.

    `token-mean`: over all tokens. `seq-mean-token-mean`: a row's mean, over the rows. `seq-mean-token-sum`: a row's
    sum, over the rows. `seq-mean-token-sum-norm`: the same over a constant `scale`; raises `ValueError` without one.
    Rows must not be divided.
    """
    if mode == "token-mean":
        return values.sum() / max(1, totals.tokens)
    if mode == "seq-mean-token-mean":
        _, place, count = torch.unique(row, return_inverse=True, return_counts=True)
        values = values / count[place]
    shared = values.sum() / max(1, totals.sequences)
    if mode != "seq-mean-token-sum-norm":
        return shared
    if scale is None:
        raise ValueError(f"{mode} needs a scale, a number of tokens")
    return shared / scale


def policy_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    row: torch.Tensor,
    totals: BatchNormalizer,
    options: ActorSettings,
    *,
    weights: torch.Tensor | None = None,
    entropy: torch.Tensor | None = None,
    reference: torch.Tensor | None = None,
) -> LossTerm:
    """Return the loss: policy gradient - entropy_coeff · entropy + kl_loss_coef · KL. All tensors are [K].

    ratio = exp(log_probs - old_log_probs), the difference within ±20. `weights` correct for stale data
    (`importance_weights`). `loss_mode` says what a token's loss is:

    - vanilla: max(-A · ratio, -A · clip(ratio, 1 - low, 1 + high)) (PPO, arXiv 1707.06347), and for A < 0 at most
      -A · clip_ratio_c (dual clip, 1912.09729).
    - gspo: the same maximum with the row's ratio, exp of the mean difference over its tokens (2507.18071).
    - cispo: -A · log_probs · clip(ratio, 1 - low, 1 + high), without gradient through the ratio (2506.13585).

    Raises `ValueError` when a term that the options ask for lacks its input.
    """
    difference = (log_probs - old_log_probs).clamp(-LIMIT, LIMIT)
    if options.loss_mode == "cispo":
        losses, metrics = _weighted_log_probs(log_probs, torch.exp(difference.detach()), advantages, totals, options)
    else:
        of = _row_difference(difference, row) if options.loss_mode == "gspo" else difference
        losses, metrics = _clip(torch.exp(of), advantages, totals, options)
    if weights is not None:
        losses = losses * weights

    def share(values: torch.Tensor) -> torch.Tensor:
        return aggregate(values, row, options.loss_agg_mode, totals, options.loss_scale_factor)

    loss = share(losses)
    metrics |= {"actor/pg_loss": loss.detach(), "actor/ppo_kl": _token_mean(-difference, totals)}
    if entropy is not None:
        metrics["actor/entropy"] = _token_mean(entropy, totals)
    if options.entropy_coeff:
        loss = loss - options.entropy_coeff * share(require(entropy, "entropy_coeff", "the policy's entropy"))
    if options.use_kl_loss:
        reference = require(reference, "use_kl_loss", "the reference's log-probs")
        kl_loss = share(kl_estimate(log_probs, reference, options.kl_loss_type))
        loss = loss + options.kl_loss_coef * kl_loss
        metrics["actor/kl_loss"] = kl_loss.detach()
    return LossTerm(loss, metrics)


def _clip(
    ratio: torch.Tensor, advantages: torch.Tensor, totals: BatchNormalizer, options: ActorSettings
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the losses [K], and the clipped fraction of the mini-batch's tokens."""
    free = -advantages * ratio
    clipped = torch.maximum(free, -advantages * ratio.clamp(1 - options.low, 1 + options.high))
    # GSPO has no dual clip
    dual = (advantages < 0) & (options.loss_mode == "vanilla")
    ceiling = torch.where(dual, -advantages * options.clip_ratio_c, torch.inf)
    metrics = {
        "actor/pg_clipfrac": _token_mean(clipped > free, totals),
        "actor/pg_clipfrac_lower": _token_mean(clipped > ceiling, totals),
    }
    return torch.minimum(clipped, ceiling), metrics


def _row_difference(difference: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """Return [K]: the mean difference over each token's row; its gradient reaches each token as if it were its own."""
    _, place, count = torch.unique(row, return_inverse=True, return_counts=True)
    sums = difference.new_zeros(len(count)).index_add(0, place, difference.detach())
    return (sums / count)[place] + difference - difference.detach()


def _weighted_log_probs(
    log_probs: torch.Tensor,
    ratio: torch.Tensor,
    advantages: torch.Tensor,
    totals: BatchNormalizer,
    options: ActorSettings,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return CISPO's losses [K], and the clipped fraction of the mini-batch's tokens."""
    weight = ratio.clamp(1 - options.low, 1 + options.high)
    metrics = {
        "actor/pg_clipfrac": _token_mean(weight < ratio, totals),
        "actor/pg_clipfrac_lower": _token_mean(weight > ratio, totals),
    }
    return -advantages * weight * log_probs, metrics


def _token_mean(values: torch.Tensor, totals: BatchNormalizer) -> torch.Tensor:
    return values.detach().float().sum() / max(1, totals.tokens)


def value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    row: torch.Tensor,
    totals: BatchNormalizer,
    *,
    cliprange_value: float = 0.5,
) -> LossTerm:
    """Return the critic's loss over [K] tokens: 0.5 · mean of max((v - return)², (clipped v - return)²).

    The clipped v stays within `cliprange_value` of the value that the advantages were computed with (PPO's reference
    implementation by OpenAI, 2017).
    """
    near = values.clamp(old_values - cliprange_value, old_values + cliprange_value)
    free, clipped = (values - returns).square(), (near - returns).square()
    loss = 0.5 * aggregate(torch.maximum(free, clipped), row, "token-mean", totals)
    metrics = {
        "critic/vf_loss": loss.detach(),
        "critic/vf_clipfrac": _token_mean(clipped > free, totals),
        "critic/vpred_mean": _token_mean(values, totals),
    }
    return LossTerm(loss, metrics)
