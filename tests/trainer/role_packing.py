"""How sequences are packed; role_update.py and role_vision.py compare packed trainings with padded and plain ones."""

import unittest

import torch

from webgym_cli.trainer.engine.batching import bin_pack
from webgym_cli.trainer.model.inputs import pack

check = unittest.TestCase()


def split(packed, values):
    """Return the parts of [L, ...] that belong to the sequences."""
    return values.split(packed.cu_seqlens.diff().tolist())


def test_positions_start_anew_and_lengths_are_kept():
    packed = pack([torch.tensor([5, 6, 7]), torch.tensor([8, 9])])
    assert packed.input_ids.tolist() == [[5, 6, 7, 8, 9]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 0, 1]]
    assert (packed.cu_seqlens.tolist(), packed.cu_seqlens.dtype) == ([0, 3, 5], torch.int32)
    assert packed.flash_arguments()["max_length_q"] == 3
    assert [part.tolist() for part in split(packed, packed.input_ids[0])] == [[5, 6, 7], [8, 9]]


def test_no_token_sees_another_sequence_or_the_future():
    packed = pack([torch.tensor([5, 6]), torch.tensor([8, 9, 9])])
    wanted = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]
    added = packed.block_mask(torch.float32)
    assert added.shape == (1, 1, 5, 5)
    assert (added == 0)[0, 0].int().tolist() == wanted
    assert added.min() == torch.finfo(torch.float32).min


def test_several_position_axes():
    positions = [torch.arange(6).view(2, 3), torch.arange(4).view(2, 2)]
    packed = pack([torch.tensor([5, 6, 7]), torch.tensor([8, 9])], positions)
    assert packed.position_ids.tolist() == [[[0, 1, 2, 0, 1]], [[3, 4, 5, 2, 3]]]


def test_what_cannot_be_packed_is_refused():
    with check.assertRaisesRegex(ValueError, "sequence 1 has 0 tokens"):
        pack([torch.tensor([1]), torch.tensor([], dtype=torch.long)])
    with check.assertRaisesRegex(ValueError, "sequence 0 has 1 tokens and 2 positions"):
        pack([torch.tensor([1])], [torch.tensor([0, 1])])


def test_sequences_share_packs():
    assert bin_pack([4, 6, 5, 3, 2], 10) == [[0, 1], [2, 3, 4]]
    assert bin_pack([], 10) == []
    with check.assertRaisesRegex(ValueError, "sequence 1 has 11 tokens, a pack holds 10"):
        bin_pack([1, 11], 10)


def test_every_sequence_is_in_one_pack_that_holds_it():
    lengths = torch.randint(1, 500, (300,)).tolist()
    packs = bin_pack(lengths, 1000)
    assert sorted(number for chosen in packs for number in chosen) == list(range(300))
    loads = [sum(lengths[number] for number in chosen) for chosen in packs]
    assert max(loads) <= 1000
    assert len(packs) <= 1.03 * sum(lengths) / 1000 + 1
