"""Advantage estimators by name: those that are built in, and those of a user's `plugins`.

This module imports no torch: it is read where a training is planned, too. An estimator imports torch in its body.
"""

from __future__ import annotations

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


def _grpo(given: EstimatorInputs) -> torch.Tensor:
    from webgym_cli.train.rl.advantages import grpo

    return grpo(given.tokens, given.rewards, norm_adv_by_std_in_grpo=given.options.norm_adv_by_std_in_grpo)


def _rloo(given: EstimatorInputs) -> torch.Tensor:
    from webgym_cli.train.rl.advantages import rloo

    return rloo(given.tokens, given.rewards)


def _reinforce_plus_plus(given: EstimatorInputs) -> torch.Tensor:
    from webgym_cli.train.rl.advantages import reinforce_plus_plus

    return reinforce_plus_plus(given.tokens, given.rewards, gamma=given.options.gamma)


def _remax(given: EstimatorInputs) -> torch.Tensor:
    from webgym_cli.train.rl.advantages import remax

    return remax(given.tokens, given.rewards, given.greedy)


def _gae(given: EstimatorInputs) -> tuple[torch.Tensor, torch.Tensor]:
    from webgym_cli.train.rl.advantages import gae
    from webgym_cli.train.rl.experience import require

    values = require(given.values, "adv_estimator=gae", "the critic's values")
    return gae(given.tokens, given.rewards, values, gamma=given.options.gamma, lam=given.options.lam)


def _gigpo(given: EstimatorInputs) -> torch.Tensor:
    from webgym_cli.train.rl.advantages import gigpo
    from webgym_cli.train.rl.experience import require

    anchors, options = require(given.anchors, "adv_estimator=gigpo", "the steps' observations"), given.options
    return gigpo(
        given.tokens,
        given.rewards,
        anchors,
        gamma=options.gamma,
        step_advantage_w=options.step_advantage_w,
        norm_adv_by_std_in_grpo=options.norm_adv_by_std_in_grpo,
    )


GRPO = AdvantageEstimator(_grpo, group_relative=True)
RLOO = AdvantageEstimator(_rloo, group_relative=True)
REINFORCE_PLUS_PLUS = AdvantageEstimator(_reinforce_plus_plus, whitens=True)
REMAX = AdvantageEstimator(_remax, needs_greedy=True)
GAE = AdvantageEstimator(_gae, needs_critic=True, whitens=True)
GIGPO = AdvantageEstimator(_gigpo, group_relative=True, needs_anchors=True)

# The estimators that can be named.
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
