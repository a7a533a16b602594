import math

import torch

from webgym_cli.trainer.webrl import webrl_batch as webrl


def close(rows, wanted):
    torch.testing.assert_close(rows.double(), torch.tensor(wanted, dtype=torch.float64), atol=1e-6, rtol=1e-6)


def test_log_probs_are_summed_over_actions():
    result = webrl.action_sums(torch.tensor([-1.0, -2.0, -4.0]), torch.tensor([1, 0, 1]), 3)
    assert result.tolist() == [-2.0, -5.0, 0.0]


def test_the_critic_by_hand():
    even, sure = torch.zeros(2, 2), torch.tensor([[0.0, math.log(3)], [math.log(3), 0.0]])
    close(webrl.success_probability(even, sure), [0.5, 0.25])
    # the even head: ln 2 for both; the sure one: -ln 0.75 for both
    close(webrl.critic_loss(torch.tensor([True, False]), even, sure), [math.log(2) - math.log(0.75)] * 2)


def test_the_papers_advantage_by_hand():
    # a step within a success: 0.5 · (0 + 0.6 - 0.4) + 0.5 · (1 - 0.4); its last step; a step of a failure
    rows = ([0.0, 1.0, 0.0], [0.4, 0.6, 0.4], [0.6, 0.0, 0.6], [1.0, 1.0, 0.0])
    close(webrl.paper_advantage(*map(torch.tensor, rows)), [0.4, 0.4, -0.1])


def test_the_papers_loss_by_hand():
    log_probs = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss = webrl.paper_loss(log_probs, torch.tensor([-1.5, -2.0]), torch.tensor([0.4, -0.2]), beta=0.5)
    close(loss, [(0.25 - 0.4) ** 2, 0.2**2])
    loss.mean().backward()
    close(log_probs.grad, [0.5 * (0.25 - 0.4), 0.5 * 0.2])


def test_without_a_hold_the_papers_loss_is_the_limit_of_its_gradient():
    reference, advantage = torch.tensor([-1.5, -2.0]), torch.tensor([0.4, -0.2])
    calls = []
    for beta in (0.0, 1e-6):
        log_probs = torch.tensor([-1.0, -3.0], requires_grad=True)
        webrl.paper_loss(log_probs, reference, advantage, beta).sum().backward()
        calls.append(log_probs.grad / (2 * beta or 1))
    close(calls[0], [-0.4, 0.2])
    torch.testing.assert_close(calls[0], calls[1], atol=1e-4, rtol=1e-4)


def test_the_return_of_a_reward_on_each_step_by_hand():
    # three steps left: 1 + 0.9 + 0.81; one left; a failure
    close(webrl.monte_carlo(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([3.0, 1.0, 3.0])), [2.71, 1.0, 0.0])
    close(webrl.monte_carlo(torch.tensor([1.0]), torch.tensor([3.0]), gamma=1.0), [3.0])
    close(webrl.monte_carlo(torch.tensor([1.0]), torch.tensor([3.0]), gamma=0.0), [1.0])


def test_the_released_advantage_by_hand():
    rows = ([0.5, 0.9, 0.3], [0.4, 0.1, 0.4], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    close(webrl.released_advantage(*map(torch.tensor, rows)), [-0.15, 1.0, 0.05])


def test_the_released_loss_by_hand():
    # x = 0.5, b = 1: 0.5 · (0.5 - 1)² = 0.125. Confident: x = 0.05, b = 5: 0.5 · (0.25 - 1)² / 5 = 0.05625.
    # x = 2, b = 1 / x: nothing left to gain. The last has a negative advantage.
    log_probs = torch.tensor([-2.0, -0.2, -4.0, -1.0], requires_grad=True)
    reference = torch.tensor([-4.0, -0.4, -12.0, -1.0])
    loss = webrl.released_loss(log_probs, reference, torch.full((4,), 4.0), torch.tensor([1.0, 0.0, 1.0, -0.1]))
    close(loss, [0.125, 0.05625, 0.0, 0.0])
    loss.mean().backward()
    # -(1 - b · x) for 0 ≤ x < 1 / b, over four tokens and four actions
    close(log_probs.grad, [-0.5 / 16, -0.75 / 16, 0.0, 0.0])
    # what fell behind is pulled back
    log_probs, reference = torch.tensor([-3.0, -2.0], requires_grad=True), torch.tensor([-2.0, -2.0])
    webrl.released_loss(log_probs, reference, torch.ones(2), torch.ones(2)).mean().backward()
    close(log_probs.grad, [-0.5, -0.5])
