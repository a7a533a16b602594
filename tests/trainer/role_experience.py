import math
import unittest

import torch
from padded import batch_of, tokens_of

from webgym_cli.trainer.experience import accumulate, whiten
from webgym_cli.trainer.options import TrainingError

check = unittest.TestCase()
NAN = math.nan


def test_tokens_are_ordered_by_trajectory_step_and_position():
    mask = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 0], [0, 1, 1, 0]])
    order = {"trajectory": torch.tensor([1, 0, 1]), "step": torch.tensor([1, 0, 0])}
    tokens = tokens_of(mask, torch.tensor([0.5, 1.0]), torch.tensor([7, 7]), **order)
    assert tokens.row.tolist() == [0, 1, 1, 2, 2]
    assert tokens.column.tolist() == [2, 1, 2, 1, 3]
    assert tokens.trajectory.tolist() == [0, 1, 1, 1, 1]
    assert tokens.last.tolist() == [True, False, False, False, True]
    assert tokens.group.tolist() == [0, 0]


def test_failed_episodes_have_no_tokens():
    mask = torch.tensor([[0, 1, 1], [0, 1, 1], [0, 0, 1]])
    tokens = tokens_of(mask, torch.tensor([1.0, NAN, 0.0]), torch.tensor([0, 0, 0]))
    assert tokens.trajectory.tolist() == [0, 0, 2]
    assert tokens.column.tolist() == [1, 2, 2]
    assert tokens.valid.tolist() == [True, False, True]
    assert tokens.total(torch.tensor([1.0, 2.0, 4.0])).tolist() == [3.0, 0.0, 4.0]


def test_contradictory_input_is_refused():
    order = {"trajectory": torch.tensor([0, 0]), "step": torch.tensor([2, 2])}
    for count, given, text in (
        (3, {}, "the batch: trajectory 2 has a reward, but the policy produced no token in it"),
        (1, order, "the batch: two rows are the same step of the same trajectory"),
    ):
        with check.assertRaisesRegex(TrainingError, text):
            batch_of(torch.tensor([[0, 1], [0, 1]]), torch.ones(count), torch.zeros(count), **given).tokens()


def test_accumulation_equals_the_loop():
    for length in (1, 2, 3, 7, 8, 100):
        values, factor = torch.randn(length), torch.rand(length)
        factor[length // 2] = 0
        wanted, following = [], 0.0
        for value, share in zip(values.tolist()[::-1], factor.tolist()[::-1], strict=True):
            following = value + share * following
            wanted.insert(0, following)
        torch.testing.assert_close(accumulate(values, factor), torch.tensor(wanted, dtype=torch.float64))


def test_whitened_values_have_mean_0_and_unbiased_variance_1():
    # mean 4, variance (4 + 0 + 4) / 2 = 4
    torch.testing.assert_close(whiten(torch.tensor([2.0, 4.0, 6.0])).float(), torch.tensor([-1.0, 0.0, 1.0]))
    assert whiten(torch.tensor([5.0])).tolist() == [0.0]
    assert len(whiten(accumulate(torch.zeros(0), torch.zeros(0)))) == 0
