import math
import unittest

import torch

from webgym_cli.config.rl import ActorSettings
from webgym_cli.trainer.ppo.kl import kl_estimate
from webgym_cli.trainer.ppo.objectives import BatchNormalizer, aggregate, policy_loss, value_loss

check = unittest.TestCase()
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


def close(rows, wanted):
    torch.testing.assert_close(rows.double(), torch.tensor(wanted, dtype=torch.float64), atol=1e-6, rtol=1e-6)


def test_the_clipped_objective_by_hand():
    # A = 1: ratio 1.5 counts as 1.2; 0.5 as itself. A = -1: 0.5 counts as 0.8; 5 as 3 (dual clip)
    ratio = torch.tensor([1.5, 0.5, 0.5, 5.0])
    log_probs = torch.log(ratio).requires_grad_()
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    row, totals = torch.zeros(4).long(), BatchNormalizer(4, 1)
    loss_term = policy_loss(log_probs, torch.zeros(4), advantages, row, totals, ActorSettings())
    close(loss_term.loss, (-1.2 - 0.5 + 0.8 + 3.0) / 4)
    close(loss_term.metrics["actor/pg_clipfrac"], 0.5)
    close(loss_term.metrics["actor/pg_clipfrac_lower"], 0.25)
    close(loss_term.metrics["actor/ppo_kl"], -float(torch.log(ratio).mean()))
    loss_term.loss.backward()
    close(log_probs.grad, [0.0, -0.5 / 4, 0.0, 0.0])  # what is clipped has no gradient


def test_both_sides_of_the_clip_can_differ():
    options = ActorSettings(clip_ratio_low=0.1, clip_ratio_high=0.4)
    log_probs = torch.log(torch.tensor([1.5, 0.5]))
    advantages = torch.tensor([1.0, -1.0])
    row, totals = torch.zeros(2).long(), BatchNormalizer(2, 1)
    close(policy_loss(log_probs, torch.zeros(2), advantages, row, totals, options).loss, -0.25)


def test_a_first_update_is_the_plain_policy_gradient():
    log_probs = torch.tensor([-1.0, -2.0], requires_grad=True)
    advantages = torch.tensor([0.5, -2.0])
    row, totals = torch.zeros(2).long(), BatchNormalizer(2, 1)
    policy_loss(log_probs, log_probs.detach(), advantages, row, totals, ActorSettings()).loss.backward()
    close(log_probs.grad, [-0.25, 1.0])


def test_extreme_ratios_stay_finite():
    row, totals = torch.zeros(1).long(), BatchNormalizer(1, 1)
    loss_term = policy_loss(torch.tensor([500.0]), torch.zeros(1), torch.tensor([-1.0]), row, totals, ActorSettings())
    close(loss_term.loss, 3.0)


def test_each_aggregation_by_hand():
    values, row = torch.tensor([1.0, 2.0, 3.0, 6.0]), torch.tensor([0, 0, 0, 4])
    means = {"token-mean": 12 / 4, "seq-mean-token-mean": (2 + 6) / 2, "seq-mean-token-sum": (6 + 6) / 2}
    wanted = means | {"seq-mean-token-sum-norm": (6 + 6) / 2 / 3}
    for mode in MODES:
        close(aggregate(values, row, mode, BatchNormalizer(4, 2), 3), wanted[mode])


def example(count=20):
    names = ("log_probs", "old", "advantages", "weights", "entropy", "reference")
    by_name = {name: torch.randn(count).double() for name in names}
    by_name["log_probs"] = by_name["log_probs"].requires_grad_()
    return by_name, torch.arange(count) // 3  # rows of three tokens, the last of two


def test_micro_batches_add_up_to_the_whole():
    result, row = example()
    totals = BatchNormalizer(20, 7)
    parts = [row < 2, (row >= 2) & (row < 3), row >= 3]
    terms = {"loss_scale_factor": 5, "entropy_coeff": 0.1, "use_kl_loss": True, "kl_loss_coef": 0.2}
    for mode in MODES:
        options = ActorSettings(loss_agg_mode=mode, **terms)

        def share(chosen, options=options):
            kept = {name: value[chosen] for name, value in result.items()}
            first = (kept.pop("log_probs"), kept.pop("old"), kept.pop("advantages"))
            return policy_loss(*first, row[chosen], totals, options, **kept)

        whole, shares = share(row >= 0), [share(part) for part in parts]
        torch.testing.assert_close(sum(part.loss for part in shares), whole.loss)
        for name, value in whole.metrics.items():
            torch.testing.assert_close(sum(part.metrics[name] for part in shares), value)


def test_the_terms_are_weighted_and_signed():
    result, row = example()
    totals = BatchNormalizer(20, 7)
    first = (result["log_probs"], result["old"], result["advantages"], row, totals)
    plain = policy_loss(*first, ActorSettings()).loss
    more = {"entropy": result["entropy"], "reference": result["reference"]}
    options = ActorSettings(entropy_coeff=0.25, use_kl_loss=True, kl_loss_coef=0.5, kl_loss_type="mse")
    loss_term = policy_loss(*first, options, **more)
    kl = kl_estimate(result["log_probs"], result["reference"], "mse").mean()
    torch.testing.assert_close(loss_term.loss, plain - 0.25 * result["entropy"].mean() + 0.5 * kl)
    torch.testing.assert_close(loss_term.metrics["actor/kl_loss"], kl.detach())
    close(loss_term.metrics["actor/entropy"], float(result["entropy"].mean()))


def test_weights_correct_the_policy_gradient_only():
    row, totals = torch.zeros(2).long(), BatchNormalizer(2, 1)
    advantages, weights, entropy = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 2.0]), torch.tensor([1.0, 3.0])
    zeros = torch.zeros(2)
    options = ActorSettings(entropy_coeff=0.1)
    loss_term = policy_loss(zeros, zeros, advantages, row, totals, options, weights=weights, entropy=entropy)
    close(loss_term.loss, (-0.5 + 2.0) / 2 - 0.1 * 2.0)


def test_a_term_without_its_input_and_an_aggregation_without_its_scale_are_refused():
    result, row = example()
    first = (result["log_probs"], result["old"], result["advantages"], row, BatchNormalizer(20, 7))
    with check.assertRaisesRegex(ValueError, "entropy_coeff needs the policy's entropy"):
        policy_loss(*first, ActorSettings(entropy_coeff=0.1))
    with check.assertRaisesRegex(ValueError, "use_kl_loss needs the reference"):
        policy_loss(*first, ActorSettings(use_kl_loss=True))
    with check.assertRaisesRegex(ValueError, "seq-mean-token-sum-norm needs a scale"):
        aggregate(torch.ones(1), torch.zeros(1).long(), "seq-mean-token-sum-norm", BatchNormalizer(1, 1))


def test_the_critic_by_hand():
    # v 1, was 0.2, return 0: clipped to 0.7, the worse counts: 1. v 0.1, was 1: clipped to 0.5, which is worse: 0.25
    values = torch.tensor([1.0, 0.1], requires_grad=True)
    row, was = torch.tensor([0, 1]), torch.tensor([0.2, 1.0])
    loss_term = value_loss(values, was, torch.zeros(2), row, BatchNormalizer(2, 2), cliprange_value=0.5)
    close(loss_term.loss, 0.5 * (1.0 + 0.25) / 2)
    close(loss_term.metrics["critic/vf_clipfrac"], 0.5)
    close(loss_term.metrics["critic/vpred_mean"], 0.55)
    loss_term.loss.backward()
    close(values.grad, [0.5, 0.0])


def test_values_within_the_range_are_not_counted_as_clipped():
    values = torch.randn(1000)
    row, totals = torch.zeros(1000).long(), BatchNormalizer(1000, 1)
    loss_term = value_loss(values, values + 0.4 * torch.rand(1000), torch.randn(1000), row, totals, cliprange_value=0.5)
    close(loss_term.metrics["critic/vf_clipfrac"], 0.0)


def test_gspo_by_hand():
    """Row 0 has ratios 2 and 0.5: its own is 1. Row 4 has 1.5 and 1.5: clipped to 1.2 where A = 1."""
    log_probs = torch.log(torch.tensor([2.0, 0.5, 1.5, 1.5])).requires_grad_()
    advantages, row = torch.tensor([3.0, 3.0, 1.0, 1.0]), torch.tensor([0, 0, 4, 4])
    options = ActorSettings(loss_mode="gspo", loss_agg_mode="seq-mean-token-mean")
    loss_term = policy_loss(log_probs, torch.zeros(4), advantages, row, BatchNormalizer(4, 2), options)
    close(loss_term.loss, (-3.0 - 1.2) / 2)
    close(loss_term.metrics["actor/pg_clipfrac"], 0.5)
    loss_term.loss.backward()
    close(log_probs.grad, [-3.0 / 4, -3.0 / 4, 0.0, 0.0])  # the ratio's derivative, through the mean of its row
    one = (torch.log(torch.tensor([5.0])), torch.zeros(1), -torch.ones(1), torch.zeros(1).long())
    close(policy_loss(*one, BatchNormalizer(1, 1), ActorSettings(loss_mode="gspo")).loss, 5.0)  # it has no dual clip


def test_cispo_by_hand():
    """A token's loss is -A · log-prob · clipped ratio; what is clipped keeps its gradient."""
    ratio = torch.tensor([1.5, 0.5, 8.0])
    log_probs = torch.log(torch.tensor([0.6, 0.2, 0.8])).requires_grad_()
    old = (log_probs - torch.log(ratio)).detach()
    advantages, row = torch.tensor([1.0, -1.0, 2.0]), torch.zeros(3).long()
    options = ActorSettings(loss_mode="cispo", clip_ratio_low=1.0, clip_ratio_high=4.0)
    loss_term = policy_loss(log_probs, old, advantages, row, BatchNormalizer(3, 1), options)
    close(loss_term.loss, (-1.5 * math.log(0.6) + 0.5 * math.log(0.2) - 2 * 5 * math.log(0.8)) / 3)
    loss_term.loss.backward()
    close(log_probs.grad, [-1.5 / 3, 0.5 / 3, -10.0 / 3])
    close(loss_term.metrics["actor/pg_clipfrac"], 1 / 3)
