"""Registry of advantage estimators: the built-in ones and those of a user's `plugins`.

This module imports no torch, because webgym's own venv imports it to plan a training. Estimators import torch in their
bodies.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from webgym_cli.util.registry import Registry

if TYPE_CHECKING:
    import torch

    from webgym_cli.train.rl.experience import Experience
    from webgym_cli.train.rl.options import AlgorithmConfig


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


# Returns advantages [K], or advantages and the critic's returns, both [K].
Estimate: TypeAlias = "Callable[[EstimatorInputs], torch.Tensor | tuple[torch.Tensor, torch.Tensor]]"


@dataclass(frozen=True, slots=True)
class AdvantageEstimator:
    """An estimator of token advantages, with what it needs of a training."""

    estimate: Estimate
    needs_critic: bool = False
    """Train a critic; `estimate` returns its targets, too."""
    needs_greedy: bool = False
    """Roll out one greedy episode a group (`agent.greedy_chain`)."""
    whitens: bool = False
    """Whiten the advantages unless `rl.algorithm.whiten_advantages` is set."""
    group_relative: bool = False
    """Compare the rewards of a group: equal ones have no gradient, and `rl.data.filter_groups` leaves them out."""
    needs_anchors: bool = False
    """Prepare a row for each step, with the digest of its observation."""


def advantage_estimator(name: str, **needs: bool) -> Callable[[Estimate], AdvantageEstimator]:
    """Register the decorated function as the estimator that `train.algorithm=NAME` trains with.

    `needs`: the other fields of `AdvantageEstimator`.
    """

    def register(function: Estimate) -> AdvantageEstimator:
        return ESTIMATORS.register(name, AdvantageEstimator(function, **needs))

    return register


def _formula(name: str, *settings: str, beside: tuple[str, ...] = ()) -> Estimate:
    """Wrap a formula of `advantages.py` as an estimator with its settings and its inputs `beside` the rewards."""

    def estimate(given: EstimatorInputs) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        formula = getattr(importlib.import_module("webgym_cli.train.rl.advantages"), name)
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

# Estimators by name.
ESTIMATORS: Registry[AdvantageEstimator] = Registry(
    noun="advantage estimator",
    setting="train.algorithm",
    entry_point_group="webgym.advantage_estimators",
    package="webgym_cli.train.rl.estimators",
    item_type=AdvantageEstimator,
    builtin={
        name.lower(): f"{__name__}:{name}" for name in ("GRPO", "RLOO", "REINFORCE_PLUS_PLUS", "REMAX", "GAE", "GIGPO")
    },
    usage='put @advantage_estimator("NAME") of webgym_cli.train.rl.estimators over it',
)
