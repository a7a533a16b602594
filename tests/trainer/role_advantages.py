import math
import statistics
import unittest

import torch
from padded import before, spread, tokens_of

from webgym_cli.trainer.experience import Experience
from webgym_cli.trainer.options import AlgorithmConfig
from webgym_cli.trainer.ppo import advantages as adv
from webgym_cli.trainer.ppo.advantages import estimate

check = unittest.TestCase()
NAN = math.nan


def one_token_each(rewards, groups):
    """Trajectories of a single token."""
    return tokens_of(torch.tensor([[0, 1]] * len(rewards)), torch.tensor(rewards), torch.tensor(groups))


def close(rows, wanted, tolerance=1e-6):
    torch.testing.assert_close(rows.double(), torch.tensor(wanted, dtype=torch.float64), atol=tolerance, rtol=0)


def by_outcome(estimator, rewards, groups, **options):
    tokens = one_token_each(rewards, groups)
    return estimate(tokens, adv.outcome(tokens), AlgorithmConfig(adv_estimator=estimator, **options))[0]


def test_grpo_and_rloo_by_hand():
    # mean 0.5, unbiased variance 4 · 0.25 / 3 = 1/3, std 0.5773503
    high = 0.5 / (math.sqrt(1 / 3) + 1e-6)
    close(by_outcome("grpo", [1.0, 0.0, 0.0, 1.0], [5, 5, 5, 5]), [high, -high, -high, high])
    close(by_outcome("grpo", [1.0, 0.0, 0.5], [0, 0, 0], norm_adv_by_std_in_grpo=False), [0.5, -0.5, 0.0])
    # each less the mean of the other two
    close(by_outcome("rloo", [1.0, 0.0, 0.5], [0, 0, 0]), [0.75, -0.75, 0.0])


def test_groups_are_apart_a_group_of_one_keeps_its_reward_and_one_of_equal_rewards_teaches_nothing():
    outcome = by_outcome("grpo", [3.0, 0.25, 1.0], [4, 9, 4])
    close(outcome, [1 / (math.sqrt(2) + 1e-6), 0.25, -1 / (math.sqrt(2) + 1e-6)])
    close(by_outcome("rloo", [3.0, 0.25, 1.0], [4, 9, 4]), [2.0, 0.25, -2.0])
    close(by_outcome("grpo", [0.1] * 3, [0] * 3), [0.0] * 3, tolerance=1e-9)


def test_a_failed_episode_is_no_zero():
    tokens = one_token_each([1.0, NAN, 0.5], [0, 0, 0])
    for name, wanted in (("grpo", 0.25 / (math.sqrt(0.125) + 1e-6)), ("rloo", 0.5)):
        result = estimate(tokens, adv.outcome(tokens), AlgorithmConfig(adv_estimator=name))[0]
        close(result, [wanted, -wanted])
    close(by_outcome("grpo", [0.75, NAN, NAN], [0, 0, 0]), [0.75])


def test_rewards_of_a_trajectory_are_added_up_over_its_tokens():
    tokens = tokens_of(torch.tensor([[0, 1, 1], [0, 1, 1]]), torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))
    rewards = adv.outcome(tokens) - 0.25  # as a KL penalty does it
    close(adv.rloo(tokens, rewards), [1.0, 1.0, -1.0, -1.0])


def test_credit_crosses_observations():
    # positions 1 and 2 act, 3 is an observation, 4 acts and is rewarded
    tokens = tokens_of(torch.tensor([[0, 1, 1, 0, 1, 0]]), torch.tensor([1.0]), torch.tensor([0]))
    close(adv.reinforce_plus_plus(tokens, adv.outcome(tokens)), [1.0, 1.0, 1.0])
    close(adv.reinforce_plus_plus(tokens, adv.outcome(tokens), gamma=0.5), [0.125, 0.25, 1.0])


def test_credit_crosses_the_steps_of_an_episode_but_not_episodes():
    mask = torch.tensor([[0, 0, 1], [0, 1, 0], [0, 1, 1]])
    order = {"trajectory": torch.tensor([0, 1, 0]), "step": torch.tensor([1, 0, 0])}
    tokens = tokens_of(mask, torch.tensor([1.0, 3.0]), torch.tensor([0, 1]), **order)
    assert tokens.row.tolist() == [0, 0, 1, 2]  # by trajectory and step
    assert tokens.column.tolist() == [1, 2, 2, 1]
    close(adv.reinforce_plus_plus(tokens, adv.outcome(tokens), gamma=0.5), [0.25, 0.5, 1.0, 3.0])
    close(adv.grpo(tokens, adv.outcome(tokens)), [1.0, 1.0, 1.0, 3.0])


def test_reinforce_plus_plus_is_whitened_over_all_tokens():
    returns = [0.125, 0.25, 1.0]
    tokens = tokens_of(torch.tensor([[0, 1, 1, 0, 1]]), torch.tensor([1.0]), torch.tensor([0]))
    options = AlgorithmConfig(adv_estimator="reinforce_plus_plus", gamma=0.5)
    result, _ = estimate(tokens, adv.outcome(tokens), options)
    mean, deviation = statistics.mean(returns), statistics.stdev(returns)
    close(result, [(value - mean) / deviation for value in returns])


def test_remax_by_hand_and_a_greedy_rollout_that_failed_is_refused():
    tokens = tokens_of(torch.tensor([[0, 1, 0, 1], [0, 1, 0, 0]]), torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))
    greedy = torch.tensor([0.25, 0.25])
    close(adv.remax(tokens, adv.outcome(tokens), greedy), [0.75, 0.75, -0.25])
    close(adv.remax(tokens, adv.outcome(tokens) - 0.1, greedy), [0.55, 0.65, -0.35])
    with check.assertRaisesRegex(ValueError, "trajectory 1 has no greedy rollout"):
        adv.remax(tokens, adv.outcome(tokens), torch.tensor([0.0, NAN]))
    left_out = one_token_each([1.0, NAN], [0, 1])
    close(adv.remax(left_out, adv.outcome(left_out), torch.tensor([0.5, NAN])), [0.5])


def test_gae_by_hand():
    # an observation stands between the second and the third token; gamma 0.9, lambda 0.8, values 0.5 0.4 0.2
    # delta: 0.9 · 0.4 - 0.5 = -0.14; 0.9 · 0.2 - 0.4 = -0.22; 1 - 0.2 = 0.8
    # A: 0.8; -0.22 + 0.72 · 0.8 = 0.356; -0.14 + 0.72 · 0.356 = 0.11632
    tokens = tokens_of(torch.tensor([[0, 1, 1, 0, 0, 1]]), torch.tensor([1.0]), torch.tensor([0]))
    values = torch.tensor([0.5, 0.4, 0.2])
    advantages, returns = adv.gae(tokens, adv.outcome(tokens), values, gamma=0.9, lam=0.8)
    close(advantages, [0.11632, 0.356, 0.8])
    close(returns, [0.61632, 0.756, 1.0])


def test_the_baseline_does_not_see_the_action():
    tokens = tokens_of(torch.tensor([[0, 0, 1, 1]]), torch.tensor([1.0]), torch.tensor([0]))
    outputs = torch.tensor([[9.0, 0.5, 0.25, 7.0]])  # what a critic says having read each position
    values = before(tokens, outputs)
    assert values.tolist() == [0.5, 0.25]
    outputs[0, 3] = -100.0  # having read the last action
    assert before(tokens, outputs).equal(values)
    advantages, _ = adv.gae(tokens, adv.outcome(tokens), values)
    close(advantages, [0.5, 0.75])


def by_the_loop(mask, rewards, values, gamma, lam):
    """The page's formulas in their padded form, row by row and position by position: return, GAE."""
    returns, advantages = torch.zeros_like(rewards), torch.zeros_like(rewards)
    for row in range(len(mask)):
        running = value_next = advantage = 0.0
        for position in reversed(range(mask.shape[1])):
            running = float(rewards[row, position]) + gamma * running
            if mask[row, position]:
                returns[row, position] = running
                delta = float(rewards[row, position]) + gamma * value_next - float(values[row, position])
                advantage = delta + gamma * lam * advantage
                value_next = float(values[row, position])
                advantages[row, position] = advantage
    return returns, advantages


def test_random_batches_equal_the_padded_loops():
    for seed in range(5):
        torch.manual_seed(seed)
        mask = torch.rand(4, 30) < 0.4
        mask[:, 0], mask[:, 9] = False, True
        tokens = tokens_of(mask, torch.randn(4), torch.zeros(4))
        rewards, values = torch.randn(len(tokens.row)).double(), torch.randn(len(tokens.row)).double()
        rows = (spread(tokens, part, mask.shape) for part in (rewards, values))
        wanted, wanted_gae = by_the_loop(mask, *rows, 0.97, 0.9)
        returns = adv.reinforce_plus_plus(tokens, rewards, gamma=0.97)
        close(spread(tokens, returns, mask.shape), wanted.tolist())
        result, returns = adv.gae(tokens, rewards, values, gamma=0.97, lam=0.9)
        close(spread(tokens, result, mask.shape), wanted_gae.tolist())
        close(returns, (result + values).tolist())


def test_an_estimator_says_what_it_lacks():
    tokens = one_token_each([1.0], [0])
    needs = {"gae": "adv_estimator=gae needs the critic", "remax": "adv_estimator=remax needs"}
    for name, text in (needs | {"gigpo": "needs the steps' observations"}).items():
        with check.assertRaisesRegex(ValueError, text):
            estimate(tokens, adv.outcome(tokens), AlgorithmConfig(adv_estimator=name))


def test_a_batch_of_failures_gives_nothing():
    none = torch.zeros(0).long()
    tokens = Experience(none, none, none, torch.tensor([NAN, NAN]).double(), torch.tensor([0, 0]))
    for name in ("grpo", "rloo", "reinforce_plus_plus"):
        assert estimate(tokens, adv.outcome(tokens), AlgorithmConfig(adv_estimator=name))[0].shape == (0,)


def two_episodes(anchors):
    """Two episodes of a group: rows 0 and 1 of the first (reward 1), 2 to 4 of the second (reward 0); a token each."""
    order = {"trajectory": torch.tensor([0, 0, 1, 1, 1]), "step": torch.tensor([0, 1, 0, 1, 2])}
    tokens = tokens_of(torch.tensor([[0, 1]] * 5), torch.tensor([1.0, 0.0]), torch.tensor([3, 3]), **order)
    return tokens, torch.tensor(anchors)[tokens.row]


def test_gigpo_by_hand():
    """Rows 0 and 2 answer anchor 7: returns 0.5 and 0. Rows 1 and 3 answer anchor 8: 1 and 0. Row 4 is alone."""
    tokens, anchors = two_episodes([7, 8, 7, 8, 9])
    options = {"gamma": 0.5, "norm_adv_by_std_in_grpo": False}
    result = adv.gigpo(tokens, adv.outcome(tokens), anchors, step_advantage_w=2.0, **options)
    close(result, [0.5 + 2 * 0.25, 0.5 + 2 * 0.5, -0.5 - 2 * 0.25, -0.5 - 2 * 0.5, -0.5])
    scaled = adv.gigpo(tokens, adv.outcome(tokens), anchors, gamma=0.5)
    one = math.sqrt(0.5)  # two values lie one unbiased deviation apart: each is 1 / sqrt(2) of it from the mean
    close(scaled, [2 * one, 2 * one, -2 * one, -2 * one, -one], tolerance=1e-5)


def test_gigpo_compares_steps_of_a_group_only_and_counts_each_token_of_a_step():
    order = {"trajectory": torch.tensor([0, 1, 2]), "step": torch.tensor([0, 0, 0])}
    mask = torch.tensor([[0, 1, 1], [0, 1, 0], [0, 1, 0]])
    tokens = tokens_of(mask, torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 0, 1]), **order)
    result = adv.gigpo(tokens, adv.outcome(tokens), torch.zeros(4).long(), norm_adv_by_std_in_grpo=False)
    close(result, [1.0, 1.0, -1.0, 0.0])
