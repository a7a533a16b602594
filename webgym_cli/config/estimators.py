"""Registry of advantage estimators: the built-in ones and those of a user's `plugins`.

webgym's own interpreter plans a training with it, the train venv's computes with it: it imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webgym_cli.util.registry import Registry

# Takes `EstimatorInputs` (`trainer/ppo/estimators.py`). Returns advantages [K], or advantages and the critic's returns,
# both [K].
Estimate = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AdvantageEstimator:
    """An estimator of token advantages, with what it needs of a training."""

    estimate: Estimate
    needs_critic: bool = False
    """Train a critic; `estimate` returns its targets, too."""
    needs_greedy: bool = False
    """Roll out one greedy episode a group (`agent.greedy_chain`)."""
    whitens: bool = False
    """Normalize the advantages to mean 0 and variance 1 over the batch's tokens."""
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


ESTIMATORS: Registry[AdvantageEstimator] = Registry(
    noun="advantage estimator",
    setting="train.algorithm",
    item_type=AdvantageEstimator,
    builtin={
        name.lower(): f"webgym_cli.trainer.ppo.estimators:{name}"
        for name in ("GRPO", "RLOO", "REINFORCE_PLUS_PLUS", "REMAX", "GAE", "GIGPO")
    },
    usage='put @advantage_estimator("NAME") of webgym_cli.config.estimators over it',
)
