import math
import unittest

import torch

from webgym_cli.config.rl import RolloutCorrectionSettings
from webgym_cli.trainer.ppo.kl import importance_weights, mismatch_by_staleness

check = unittest.TestCase()
OLD = torch.log(torch.tensor([0.6, 0.5, 0.1]))
ROLLOUT = torch.log(torch.tensor([0.2, 0.5, 0.4]))  # ratios 3, 1, 0.25
ROW = torch.tensor([8, 8, 3])


def weights(**options):
    result, capped = importance_weights(OLD, ROLLOUT, ROW, RolloutCorrectionSettings(**options))
    return [round(value, 5) for value in result.tolist()], round(capped, 5)


def test_ratios_are_truncated_at_the_cap_left_out_beyond_it_or_those_of_the_row():
    assert weights(rollout_is="token", rollout_is_threshold=2.0) == ([2.0, 1.0, 0.25], 0.33333)
    result = weights(rollout_is="token", rollout_is_mode="mask", rollout_is_threshold=2.0)
    assert result == ([0.0, 1.0, 0.0], 0.66667)
    assert weights(rollout_is="sequence", rollout_is_threshold=10.0) == ([3.0, 3.0, 0.25], 0.0)
    assert weights(rollout_is="sequence", rollout_is_threshold=2.0) == ([2.0, 2.0, 0.25], 0.66667)
    assert weights(rollout_is="none") == ([1.0, 1.0, 1.0], 0.0)


def test_the_mismatch_is_told_for_each_staleness():
    capped, _ = importance_weights(OLD, ROLLOUT, ROW, RolloutCorrectionSettings(rollout_is="token"))
    mismatch = mismatch_by_staleness(OLD, ROLLOUT, capped, torch.tensor([0, 0, 1]))
    # ratios 3 and 1: (3 - ln 3 - 1 + 0) / 2; weights 2 and 1: 3^2 / (2 * 5). Ratio 0.25: 0.25 + ln 4 - 1
    wanted = {0: {"kl": 0.45069, "ess": 0.9, "tokens": 2.0}, 1: {"kl": 0.63629, "ess": 1.0, "tokens": 1.0}}
    named = {f"rollout_corr/staleness_{at}/{name}": value for at, of in wanted.items() for name, value in of.items()}
    assert {name: round(value, 5) for name, value in mismatch.items()} == named


def test_weighted_samples_of_another_policy_have_the_right_expectation():
    policy, behaviour = torch.randn(50).double().log_softmax(0), torch.randn(50).double().log_softmax(0)
    score = torch.randn(50).double()
    options = RolloutCorrectionSettings(rollout_is_threshold=1e6)
    result, _ = importance_weights(policy, behaviour, torch.arange(50), options)
    torch.testing.assert_close((behaviour.exp() * result * score).sum(), (policy.exp() * score).sum())


def test_the_weights_have_no_gradient_and_stay_finite():
    old = torch.tensor([0.0], requires_grad=True)
    options = RolloutCorrectionSettings(rollout_is_threshold=1e30)
    result, _ = importance_weights(old, torch.tensor([-500.0]), torch.tensor([0]), options)
    assert not result.requires_grad
    torch.testing.assert_close(result, torch.tensor([math.exp(20)]))
