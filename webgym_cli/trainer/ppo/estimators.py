"""The built-in advantage estimators, and what an estimator gets.

This module imports no torch, because webgym's own interpreter reads what an estimator needs. Estimators import torch in
their bodies.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webgym_cli.config.estimators import AdvantageEstimator, Estimate

if TYPE_CHECKING:
    import torch

    from webgym_cli.trainer.experience import Experience
    from webgym_cli.trainer.options import AlgorithmConfig


@dataclass(frozen=True, slots=True)
class EstimatorInputs:
    """What an estimator computes advantages from: K trained tokens of N trajectories."""

    tokens: Experience
    """Trajectory, row and group of each token."""
    rewards: torch.Tensor
    """[K] float64: the episode's reward at its last token, less a KL penalty if the settings ask for one."""
    options: AlgorithmConfig
    """The settings `rl.algorithm`."""
    values: torch.Tensor | None
    """[K] float32: the critic's values, each read before its token; None without `needs_critic`."""
    greedy: torch.Tensor
    """[N] float64: reward of the greedy episode of the same group, NaN where there is none."""
    anchors: torch.Tensor | None = None
    """[K] long: number of the observation that each token's step answers, equal for equal observations; None without
    `needs_anchors`."""


def _formula(name: str, *settings: str, beside: tuple[str, ...] = ()) -> Estimate:
    """Wrap a formula of `advantages.py` as an estimator with its settings and its inputs `beside` the rewards."""

    def estimate(given: EstimatorInputs) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        formula = getattr(importlib.import_module("webgym_cli.trainer.ppo.advantages"), name)
        inputs = (getattr(given, field) for field in beside)
        result: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = formula(
            given.tokens, given.rewards, *inputs, **{key: getattr(given.options, key) for key in settings}
        )
        return result

    return estimate


GRPO = AdvantageEstimator(_formula("grpo", "norm_adv_by_std_in_grpo"), group_relative=True)
RLOO = AdvantageEstimator(_formula("rloo"), group_relative=True)
REINFORCE_PLUS_PLUS = AdvantageEstimator(_formula("reinforce_plus_plus", "gamma"), whitens=True)
REMAX = AdvantageEstimator(_formula("remax", beside=("greedy",)), needs_greedy=True)
GAE = AdvantageEstimator(_formula("gae", "gamma", "lam", beside=("values",)), needs_critic=True, whitens=True)
GIGPO = AdvantageEstimator(
    _formula("gigpo", "gamma", "step_advantage_w", "norm_adv_by_std_in_grpo", beside=("anchors",)),
    group_relative=True,
    needs_anchors=True,
)
