import math
import unittest

import torch
from padded import batch_of

from webgym_cli.config.rl import KlControlSettings
from webgym_cli.trainer.options import AlgorithmConfig
from webgym_cli.trainer.ppo.batch_targets import compute_targets
from webgym_cli.trainer.ppo.kl import kl_estimate, next_coefficient

check = unittest.TestCase()
KINDS = ("kl", "abs", "mse", "low_var_kl")


def test_each_estimate_by_hand():
    log_probs, reference = torch.tensor([-0.5, -1.5]), torch.tensor([-1.0, -1.0])  # d = 0.5, -0.5
    wanted = {"kl": [0.5, -0.5], "abs": [0.5, 0.5], "mse": [0.125, 0.125]}
    wanted["low_var_kl"] = [math.exp(-0.5) - 0.5, math.exp(0.5) - 1.5]
    for kind in KINDS:
        torch.testing.assert_close(kl_estimate(log_probs, reference, kind), torch.tensor(wanted[kind]))
    # it stays in bounds
    assert kl_estimate(torch.tensor([-30.0]), torch.tensor([0.0]), "low_var_kl").tolist() == [10.0]


def test_two_estimates_are_unbiased():
    policy, reference = torch.randn(2, 50).div(2).double().log_softmax(-1)  # near enough for the bounds
    true = (policy.exp() * (policy - reference)).sum()
    for kind in ("kl", "low_var_kl"):
        torch.testing.assert_close((policy.exp() * kl_estimate(policy, reference, kind)).sum(), true)


def test_the_gradient_of_mse_is_the_log_ratio():
    log_probs = torch.tensor([-0.5, -2.0], requires_grad=True)
    kl_estimate(log_probs, torch.tensor([-1.0, -1.0]), "mse").sum().backward()
    torch.testing.assert_close(log_probs.grad, torch.tensor([0.5, -1.0]))


def test_the_reward_is_penalised():
    batch = batch_of(torch.tensor([[0, 1]]), torch.tensor([1.0]), torch.tensor([0]))
    options = AlgorithmConfig(adv_estimator="rloo", use_kl_in_reward=True, kl_ctrl=KlControlSettings(kl_coef=0.1))
    batch_targets = compute_targets(batch, options, torch.tensor([-0.5]), reference=torch.tensor([-1.0]), values=None)
    advantages = batch_targets.tensors["advantages"]
    torch.testing.assert_close(advantages, torch.tensor([0.95]))  # a group of one keeps its reward
    check.assertAlmostEqual(batch_targets.metrics["critic/rewards/mean"], 0.95)
    check.assertAlmostEqual(batch_targets.metrics["actor/reward_kl_penalty"], 0.5)


def test_the_adaptive_coefficient_by_hand():
    control = KlControlSettings(type="adaptive", kl_coef=0.1, target_kl=0.1, horizon=100)
    check.assertAlmostEqual(next_coefficient(control, 0.3, 50), 0.1 * (1 + 0.2 * 0.5))  # error 2, clipped to 0.2
    check.assertAlmostEqual(next_coefficient(control, 0.05, 50), 0.1 * (1 - 0.2 * 0.5))  # error -0.5, clipped
    check.assertAlmostEqual(next_coefficient(control, 0.11, 100), 0.1 * 1.1)
    check.assertEqual(next_coefficient(KlControlSettings(kl_coef=0.1), 9.0, 50), 0.1)
