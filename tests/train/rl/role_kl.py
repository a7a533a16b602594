import math
import unittest

import torch

from webgym_cli.config.rl import KlControlSettings
from webgym_cli.train.rl.kl import kl_estimate, next_coefficient, subtract_kl

check = unittest.TestCase()
KINDS = ("kl", "abs", "mse", "low_var_kl")


def test_each_estimate_by_hand():
    log_probs, reference = torch.tensor([-0.5, -1.5]), torch.tensor([-1.0, -1.0])  # d = 0.5, -0.5
    wanted = {
        "kl": [0.5, -0.5],
        "abs": [0.5, 0.5],
        "mse": [0.125, 0.125],
        "low_var_kl": [math.exp(-0.5) - 0.5, math.exp(0.5) - 1.5],
    }
    for kind in KINDS:
        torch.testing.assert_close(kl_estimate(log_probs, reference, kind), torch.tensor(wanted[kind]))


def test_the_low_variance_estimate_stays_in_bounds():
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


def test_the_reward_is_penalised_without_gradient():
    log_probs = torch.tensor([-0.5], requires_grad=True)
    found = subtract_kl(torch.tensor([1.0]), log_probs, torch.tensor([-1.0]), "kl", 0.1)
    torch.testing.assert_close(found, torch.tensor([0.95]))
    assert not found.requires_grad


def test_the_adaptive_coefficient_by_hand():
    control = KlControlSettings(type="adaptive", kl_coef=0.1, target_kl=0.1, horizon=100)
    check.assertAlmostEqual(next_coefficient(control, 0.3, 50), 0.1 * (1 + 0.2 * 0.5))  # error 2, clipped to 0.2
    check.assertAlmostEqual(next_coefficient(control, 0.05, 50), 0.1 * (1 - 0.2 * 0.5))  # error -0.5, clipped
    check.assertAlmostEqual(next_coefficient(control, 0.11, 100), 0.1 * 1.1)
    check.assertEqual(next_coefficient(KlControlSettings(kl_coef=0.1), 9.0, 50), 0.1)


def test_impossible_targets_are_refused():
    for options in ({"kl_coef": -1.0}, {"target_kl": 0.0}, {"horizon": 0}):
        with check.assertRaises(ValueError):
            KlControlSettings(**options)
