"""Training targets of a batch's tokens, computed once before the first optimizer step."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from webgym_cli.train.rl.advantages import estimate, outcome
from webgym_cli.train.rl.data import Batch
from webgym_cli.train.rl.experience import Experience, collect_experience
from webgym_cli.train.rl.importance import importance_weights, mismatch_by_staleness
from webgym_cli.train.rl.kl import kl_estimate, next_coefficient, subtract_kl
from webgym_cli.train.rl.options import AlgorithmConfig, TrainingError

FILE = "lessons.safetensors"
# Advantages up to this are those of equal rewards: rounding.
NO_ADVANTAGE = 1e-8
_TENSORS = ("old_log_probs", "advantages", "weights", "reference", "values", "returns")


@dataclass(frozen=True, slots=True)
class TokenTargets:
    """Training targets of the K trained tokens, in the order of the batch's rows."""

    old_log_probs: torch.Tensor
    """[K] float32: what the ratio compares with."""
    advantages: torch.Tensor
    """[K] float32."""
    weights: torch.Tensor
    """[K] float32: the correction for data of other weights."""
    reference: torch.Tensor | None
    """[K] float32: the reference's log-probs, if it counts."""
    values: torch.Tensor | None
    """[K] float32: the critic's before the update, if there is one."""
    returns: torch.Tensor | None
    """[K] float32: what it is to predict."""
    kl_coef: float
    """The coefficient of a KL in the reward after this batch, to begin the next with."""
    metrics: dict[str, float]
    """What the logs say about the batch."""


def compute_targets(
    batch: Batch,
    options: AlgorithmConfig,
    old_log_probs: torch.Tensor,
    *,
    reference: torch.Tensor | None,
    values: torch.Tensor | None,
) -> TokenTargets:
    """Return what a batch teaches; tensors [K] on the CPU. Raises `TrainingError` for contradictory data."""
    tokens = _tokens(batch)
    scores = outcome(tokens)
    rewards, coefficient, kl_metrics = scores, options.kl_ctrl.kl_coef, {}
    if options.use_kl_in_reward and reference is not None:
        rewards = subtract_kl(scores, old_log_probs, reference, options.kl_penalty, coefficient)
        kl = _mean_of_rows(tokens, kl_estimate(old_log_probs, reference, options.kl_penalty))
        kl_metrics = {"actor/reward_kl_penalty": kl, "actor/reward_kl_penalty_coeff": coefficient}
        coefficient = next_coefficient(options.kl_ctrl, kl, len(batch.rows))
    try:
        greedy, anchors = batch.trajectories.baseline, _anchors(batch, tokens)
        estimated = estimate(tokens, rewards, options, values=values, greedy=greedy, anchors=anchors)
    except ValueError as error:
        raise TrainingError(f"algorithm: {error}") from error
    rollout = batch.rollout_log_probs
    correction = importance_weights(old_log_probs, rollout, tokens.row, options.rollout_correction)
    difference = old_log_probs - rollout
    metrics = _about(batch, tokens, rewards) | kl_metrics
    metrics |= summary_stats("critic/advantages", estimated.advantages)
    metrics["actor/rows_with_gradient"] = _share_of_rows(tokens, estimated.advantages.abs() > NO_ADVANTAGE)
    if estimated.returns is not None and values is not None:
        metrics |= summary_stats("critic/returns", estimated.returns) | summary_stats("critic/values", values)
        unexplained = float((estimated.returns - values).var(correction=0) / estimated.returns.var(correction=0))
        metrics["critic/vf_explained_var"] = 1 - unexplained
    metrics |= {
        "rollout_corr/capped": correction.capped,
        "rollout_corr/mean": float(correction.weights.mean()),
        "rollout_corr/log_prob_difference": float(difference.abs().mean()),
        "rollout_corr/kl": float(-difference.mean()),
    }
    metrics |= mismatch_by_staleness(old_log_probs, rollout, correction.weights, _staleness(batch)[tokens.row])
    return TokenTargets(
        old_log_probs,
        estimated.advantages,
        correction.weights,
        reference,
        values,
        estimated.returns,
        coefficient,
        metrics,
    )


def _tokens(batch: Batch) -> Experience:
    rows, trajectories = batch.rows, batch.trajectories
    try:
        return collect_experience(
            batch.mask(),
            trajectories.reward,
            trajectories.group,
            trajectory=torch.tensor([row.trajectory for row in rows]),
            step=torch.tensor([row.step for row in rows]),
        )
    except ValueError as error:
        raise TrainingError(f"the batch: {error}") from error


def _anchors(batch: Batch, tokens: Experience) -> torch.Tensor | None:
    """Return [K] the number of each token's observation; None where the batch does not have them."""
    if not all(row.anchor for row in batch.rows):
        return None
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(row.anchor, len(numbers)) for row in batch.rows])[tokens.row]


def _share_of_rows(tokens: Experience, mask: torch.Tensor) -> float:
    """Return the share of the rows with a token where something holds ([K] bool)."""
    return len(tokens.row[mask].unique()) / max(1, len(tokens.row.unique()))


def _staleness(batch: Batch) -> torch.Tensor:
    """Return the trainings between each row's policy and the one that is trained [rows]; -1 where nobody told."""
    ages = (-1 if row.version is None else batch.iteration - row.version for row in batch.rows)
    return torch.tensor([*ages])


def _about(batch: Batch, tokens: Experience, rewards: torch.Tensor) -> dict[str, float]:
    """Return what the logs say about episodes and lengths."""
    valid, answers = tokens.valid, [len(row.log_probs) for row in batch.rows]
    prompts = [len(row.input_ids) - answer for row, answer in zip(batch.rows, answers, strict=True)]
    count = len(batch.trajectories.reward)
    stale = _staleness(batch)
    known = stale[stale >= 0]
    return {
        **summary_stats("critic/score", batch.trajectories.reward[valid]),
        **summary_stats("critic/rewards", tokens.total(rewards)[valid]),
        **summary_stats("response_length", torch.tensor(answers)),
        **summary_stats("prompt_length", torch.tensor(prompts)),
        **(summary_stats("staleness", known) if len(known) else {}),
        "response/aborted_ratio": batch.trajectories.failed / count,
        "perf/total_num_tokens": float(sum(len(row.input_ids) for row in batch.rows)),
    }


def summary_stats(name: str, values: torch.Tensor) -> dict[str, float]:
    """Return mean, largest and smallest of some values under their names in the logs."""
    given = values.double()
    return {
        f"{name}/mean": float(given.mean()),
        f"{name}/max": float(given.max()),
        f"{name}/min": float(given.min()),
    }


def _mean_of_rows(tokens: Experience, values: torch.Tensor) -> float:
    """Return the mean over the rows of each row's mean."""
    rows = [values[tokens.row == row] for row in tokens.row.unique()]
    return statistics.fmean(float(row.mean()) for row in rows)


def save_targets(targets: TokenTargets, folder: Path, digest: str) -> None:
    """Write them into a folder, under a digest of what they were computed from."""
    tensors = {name: getattr(targets, name) for name in _TENSORS if getattr(targets, name) is not None}
    save_tensors(tensors, {"digest": digest, "kl_coef": targets.kl_coef, "metrics": targets.metrics}, folder)


def load_targets(folder: Path, digest: str) -> TokenTargets | None:
    """Return what `save_targets` wrote under this digest, or None."""
    stored = load_tensors(folder, digest)
    if stored is None:
        return None
    tensors, facts = stored
    given: dict[str, Any] = {name: tensors.get(name) for name in _TENSORS}
    return TokenTargets(**given, kl_coef=facts["kl_coef"], metrics=facts["metrics"])


def save_tensors(tensors: dict[str, torch.Tensor], facts: dict[str, Any], folder: Path) -> None:
    """Write tensors and JSON beside them into a folder's `FILE`; `facts["digest"]` says what they are for."""
    from safetensors.torch import save_file

    work = folder / f"{FILE}.new"
    # copies: the reference may be the old log-probs themselves, which the format refuses to hold twice
    save_file({name: value.clone() for name, value in tensors.items()}, work, {"facts": json.dumps(facts)})
    work.rename(folder / FILE)


def load_tensors(folder: Path, digest: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Return what `save_tensors` wrote under this digest, or None."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / FILE, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    return (tensors, facts) if facts.get("digest") == digest else None


def select(targets: TokenTargets, places: torch.Tensor, device: torch.device) -> TokenTargets:
    """Return the targets of some tokens, on a device; `places` [k] are their numbers among the K."""
    tensors = {name: getattr(targets, name) for name in _TENSORS}
    moved: dict[str, Any] = {
        name: None if value is None else value[places].to(device) for name, value in tensors.items()
    }
    return replace(targets, **moved)
