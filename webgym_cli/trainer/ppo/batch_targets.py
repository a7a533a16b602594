"""Training targets of a batch, computed once before the first optimizer step, and their computation for PPO."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from webgym_cli.trainer.data import Batch
from webgym_cli.trainer.experience import Experience
from webgym_cli.trainer.options import AlgorithmConfig, TrainingError
from webgym_cli.trainer.ppo.advantages import estimate, outcome
from webgym_cli.trainer.ppo.kl import importance_weights, kl_estimate, mismatch_by_staleness, next_coefficient
from webgym_cli.util.optional import when

FILE = "lessons.safetensors"
# Advantages up to this absolute value count as 0: rounding errors of equal rewards.
NO_ADVANTAGE = 1e-8


@dataclass(frozen=True, slots=True)
class BatchTargets:
    """Training targets of a batch, on the CPU."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """By name; one value per trained token or action, in the order of the batch's rows."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Logged metrics of the batch."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Values that `trainer_state.json` stores for the next training."""

    def select(self, places: torch.Tensor, device: torch.device) -> dict[str, torch.Tensor]:
        """Index the tensors with `places` and move the result to a device."""
        return {name: value[places].to(device) for name, value in self.tensors.items()}

    def save(self, folder: Path, digest: str) -> None:
        """Write the targets into a folder, with a digest of their inputs."""
        from safetensors.torch import save_file

        work = folder / f"{FILE}.new"
        facts = {"digest": digest, "metrics": self.metrics, **self.facts}
        # copies: the reference may be the old log-probs themselves, which the format refuses to hold twice
        save_file({name: value.clone() for name, value in self.tensors.items()}, work, {"facts": json.dumps(facts)})
        work.rename(folder / FILE)


def load_targets(folder: Path, digest: str) -> BatchTargets | None:
    """Return the targets saved in a folder with this digest, or None."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / FILE, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    return BatchTargets(tensors, facts.pop("metrics"), facts) if facts.pop("digest", None) == digest else None


def compute_targets(
    batch: Batch,
    options: AlgorithmConfig,
    old_log_probs: torch.Tensor,
    *,
    reference: torch.Tensor | None,
    values: torch.Tensor | None,
) -> BatchTargets:
    """Compute the targets of the K trained tokens. Raises `TrainingError` for contradictory data.

    They are `old_log_probs`, which the ratio compares with, `advantages`, `weights`, the correction for data of other
    weights, where it counts the `reference`'s log-probs, and with a critic its `values` before the update and the
    `returns` that it is to predict: all [K] float32. The fact `kl_coef` is the adaptive coefficient of a KL in the
    reward after this batch.
    """
    tokens = batch.tokens()
    rewards, coefficient, kl_metrics = outcome(tokens), options.kl_ctrl.kl_coef, {}
    if options.use_kl_in_reward and reference is not None:
        estimates = kl_estimate(old_log_probs, reference, options.kl_penalty)
        rewards, kl = rewards - coefficient * estimates, _mean_of_rows(tokens, estimates)
        kl_metrics = {"actor/reward_kl_penalty": kl, "actor/reward_kl_penalty_coeff": coefficient}
        coefficient = next_coefficient(options.kl_ctrl, kl, len(batch.rows))
    try:
        greedy, anchors = batch.trajectories.baseline, _anchors(batch, tokens)
        advantages, returns = estimate(tokens, rewards, options, values=values, greedy=greedy, anchors=anchors)
    except ValueError as error:
        raise TrainingError(f"algorithm: {error}") from error
    rollout = batch.rollout_log_probs
    weights, capped = importance_weights(old_log_probs, rollout, tokens.row, options.rollout_correction)
    metrics = _about(batch, tokens, rewards) | kl_metrics
    metrics |= summary_stats("critic/advantages", advantages)
    with_gradient = tokens.row[advantages.abs() > NO_ADVANTAGE]
    metrics["actor/rows_with_gradient"] = len(with_gradient.unique()) / max(1, len(tokens.row.unique()))
    if returns is not None and values is not None:
        metrics |= summary_stats("critic/returns", returns) | summary_stats("critic/values", values)
        unexplained = float((returns - values).var(correction=0) / returns.var(correction=0))
        metrics["critic/vf_explained_var"] = 1 - unexplained
    metrics |= {"rollout_corr/capped": capped} | _about_mismatch(batch, tokens, old_log_probs, weights)
    tensors = {"old_log_probs": old_log_probs, "advantages": advantages, "weights": weights}
    further = {"reference": reference, "values": values, "returns": returns}
    tensors |= {name: tensor for name, tensor in further.items() if tensor is not None}
    # of an adaptive one alone: a coefficient that never counted must not replace that of a penalty added later
    adaptive = options.use_kl_in_reward and options.kl_ctrl.type == "adaptive"
    return BatchTargets(tensors, metrics, when(adaptive, {"kl_coef": coefficient}))


def _anchors(batch: Batch, tokens: Experience) -> torch.Tensor | None:
    """Return [K] the index of each token's observation, or None if the batch has no observation digests."""
    if not all(row.anchor for row in batch.rows):
        return None
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(row.anchor, len(numbers)) for row in batch.rows])[tokens.row]


def _staleness(batch: Batch) -> torch.Tensor:
    """Return [rows] the number of trainings between each row's policy and the trained one; -1 if unknown."""
    ages = (-1 if row.version is None else batch.iteration - row.version for row in batch.rows)
    return torch.tensor([*ages])


def _about(batch: Batch, tokens: Experience, rewards: torch.Tensor) -> dict[str, float]:
    """Return metrics of episodes and lengths."""
    stale = _staleness(batch)
    known = stale[stale >= 0]
    return {
        **batch_metrics(batch),
        **summary_stats("critic/rewards", tokens.total(rewards)[tokens.valid]),
        **(summary_stats("staleness", known) if len(known) else {}),
    }


def _about_mismatch(
    batch: Batch, tokens: Experience, old_log_probs: torch.Tensor, weights: torch.Tensor
) -> dict[str, float]:
    """Return metrics of the log-probs of the training weights beside those of the weights that sampled."""
    rollout = batch.rollout_log_probs
    difference = old_log_probs - rollout
    return {
        "rollout_corr/mean": float(weights.mean()),
        "rollout_corr/log_prob_difference": float(difference.abs().mean()),
        "rollout_corr/kl": float(-difference.mean()),
        **mismatch_by_staleness(old_log_probs, rollout, weights, _staleness(batch)[tokens.row]),
    }


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Return the metrics of any batch: episode scores and lengths."""
    reward, lengths = batch.trajectories.reward, batch.offsets.diff()
    total = torch.tensor([len(row.input_ids) for row in batch.rows])
    return {
        **summary_stats("critic/score", reward[~reward.isnan()]),
        **summary_stats("response_length", lengths),
        **summary_stats("prompt_length", total - lengths),
        "response/aborted_ratio": batch.trajectories.failed / len(reward),
        "perf/total_num_tokens": float(total.sum()),
    }


def summary_stats(name: str, values: torch.Tensor) -> dict[str, float]:
    """Return mean, maximum and minimum under their metric names."""
    given = values.double()
    return {
        f"{name}/mean": float(given.mean()),
        f"{name}/max": float(given.max()),
        f"{name}/min": float(given.min()),
    }


def _mean_of_rows(tokens: Experience, values: torch.Tensor) -> float:
    """Return the mean over the rows of each row's mean."""
    _, place, count = torch.unique(tokens.row, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(count), dtype=torch.float64).index_add(0, place, values.double())
    return float((sums / count).mean())
