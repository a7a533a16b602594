import math
import unittest

import torch

from webgym_cli.train.rl.experience import accumulate, collect_experience, whiten

check = unittest.TestCase()
NAN = math.nan


def test_tokens_are_ordered_by_trajectory_step_and_position():
    mask = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 0], [0, 1, 1, 0]])
    made = collect_experience(
        mask,
        torch.tensor([0.5, 1.0]),
        torch.tensor([7, 7]),
        trajectory=torch.tensor([1, 0, 1]),
        step=torch.tensor([1, 0, 0]),
    )
    assert made.row.tolist() == [1, 2, 2, 0, 0]
    assert made.column.tolist() == [2, 1, 2, 1, 3]
    assert made.trajectory.tolist() == [0, 1, 1, 1, 1]
    assert made.last.tolist() == [True, False, False, False, True]
    assert made.group.tolist() == [0, 0]
    assert made.mask().int().tolist() == mask.tolist()


def test_rows_without_step_numbers_stay_in_order():
    mask = torch.tensor([[0, 1], [0, 1], [0, 1]])
    made = collect_experience(mask, torch.tensor([0.0, 1.0]), torch.zeros(2), trajectory=torch.tensor([1, 0, 1]))
    assert made.row.tolist() == [1, 0, 2]


def test_failed_episodes_have_no_tokens():
    mask = torch.tensor([[0, 1, 1], [0, 1, 1], [0, 0, 1]])
    made = collect_experience(mask, torch.tensor([1.0, NAN, 0.0]), torch.tensor([0, 0, 0]))
    assert made.row.tolist() == [0, 0, 2]
    assert made.valid.tolist() == [True, False, True]
    assert made.mask().int().tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 1]]
    assert made.total(torch.tensor([1.0, 2.0, 4.0])).tolist() == [3.0, 0.0, 4.0]


def test_a_batch_of_failures_is_empty():
    made = collect_experience(torch.tensor([[0, 1]]), torch.tensor([NAN]), torch.tensor([3]))
    assert len(made.row) == 0
    assert not made.mask().any()
    assert len(whiten(accumulate(torch.zeros(0), torch.zeros(0)))) == 0


def test_values_are_read_at_and_before_the_tokens():
    padded = torch.arange(8.0).view(2, 4)
    made = collect_experience(torch.tensor([[0, 1, 0, 1], [0, 0, 1, 0]]), torch.ones(2), torch.zeros(2))
    assert made.flat(padded).tolist() == [1.0, 3.0, 6.0]
    assert made.before(padded).tolist() == [0.0, 2.0, 5.0]
    assert made.padded(made.flat(padded)).tolist() == [[0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 6.0, 0.0]]


def refused(text, mask, reward, group, **more):
    with check.assertRaisesRegex(ValueError, text):
        collect_experience(torch.tensor(mask), torch.tensor(reward), torch.tensor(group), **more)


def test_contradictory_input_is_refused():
    row = [[0, 1]]
    refused("2 rewards, but 1 groups", row, [1.0, 1.0], [0])
    refused("1 rows, but 2 trajectory numbers", row, [1.0], [0], trajectory=torch.tensor([0, 0]))
    refused("from 0 to 0", row, [1.0], [0], trajectory=torch.tensor([1]))
    refused("trajectory 0 is infinite", row, [math.inf], [0])
    refused("row 1: its first token", [[0, 1], [1, 1]], [1.0, 1.0], [0, 0])
    refused("trajectory 1 has a reward, but", [[0, 1], [0, 0]], [1.0, 1.0], [0, 0])
    same = {"trajectory": torch.tensor([0, 0]), "step": torch.tensor([2, 2])}
    refused("same step of the same trajectory", [[0, 1], [0, 1]], [1.0], [0], **same)


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
