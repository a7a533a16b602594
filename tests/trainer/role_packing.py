import functools
import unittest

import torch
from padded import before, flat, tokens_of

from webgym_cli.trainer.engine.batching import bin_pack
from webgym_cli.trainer.model.inputs import pack
from webgym_cli.trainer.model.logprobs import token_log_probs

check = unittest.TestCase()
LENGTHS = (7, 3, 12, 1, 9)


def split(packed, values):
    """Return the parts of [L, ...] that belong to the sequences."""
    return values.split(packed.cu_seqlens.diff().tolist())


def ids(lengths=LENGTHS, vocabulary=90):
    return [torch.randint(vocabulary, (length,)) for length in lengths]


@functools.cache
def tiny(attention, dtype=torch.float32):
    """A Qwen3 of two layers with random weights."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    config = Qwen3Config(
        vocab_size=90,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=False,
    )
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype).eval()


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


def test_packed_logits_equal_those_of_each_sequence_alone():
    for attention in ("sdpa", "eager"):
        model, sequences = tiny(attention), ids()
        packed = pack(sequences)
        mask = packed.block_mask(torch.float32)
        logits = model(input_ids=packed.input_ids, position_ids=packed.position_ids, attention_mask=mask).logits[0]
        for part, sequence in zip(split(packed, logits), sequences, strict=True):
            torch.testing.assert_close(part, model(input_ids=sequence[None]).logits[0], atol=1e-5, rtol=1e-5)


def test_other_sequences_change_nothing():
    model, sequences = tiny("sdpa"), ids()
    results = []
    for first in (sequences[0], (sequences[0] + 1) % 90):
        packed = pack([first, *sequences[1:]])
        mask = packed.block_mask(torch.float32)
        made = model(input_ids=packed.input_ids, position_ids=packed.position_ids, attention_mask=mask)
        results.append(split(packed, made.logits[0]))
    assert not results[0][0].equal(results[1][0])
    for one, other in zip(results[0][1:], results[1][1:], strict=True):
        assert one.equal(other)


def trained_tokens(lengths):
    """[B, T]: about half of each sequence, never its first token."""
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, 1:length] = torch.rand(length - 1) < 0.5
        mask[row, length - 1] = True
    return mask


def test_an_update_on_packed_sequences_equals_the_padded_one():
    lengths = (7, 3, 12, 9)
    model, sequences = tiny("sdpa"), ids(lengths)
    tokens = tokens_of(trained_tokens(lengths), torch.ones(4), torch.arange(4))
    padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    labels = flat(tokens, padded)
    attended = torch.arange(12)[None] < torch.tensor(lengths)[:, None]
    slopes = torch.randn(len(labels))

    def gradients(hidden):
        log_probs, entropy = token_log_probs(hidden, model.lm_head.weight, labels, chunk=5)
        grads = torch.autograd.grad((slopes * (log_probs - 0.1 * entropy)).sum(), list(model.parameters()))
        return log_probs, grads

    states = model.model(input_ids=padded, attention_mask=attended.long()).last_hidden_state
    wanted, wanted_grads = gradients(before(tokens, states))
    packed = pack(sequences)
    made = model.model(
        input_ids=packed.input_ids, position_ids=packed.position_ids, attention_mask=packed.block_mask(torch.float32)
    ).last_hidden_state[0]
    found, found_grads = gradients(made[packed.cu_seqlens.long()[tokens.row] + tokens.column - 1])
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    for one, other in zip(found_grads, wanted_grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def vision_model():
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text = {
        "vocab_size": 90,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]},
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 32,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
        "patch_size": 4,
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=80,
        video_token_id=81,
        vision_start_token_id=82,
        vision_end_token_id=83,
        attn_implementation="sdpa",
    )
    return Qwen3VLForConditionalGeneration(config).float().eval()


def test_screenshots_are_packed_like_text():
    model = vision_model()
    grids = torch.tensor([[1, 4, 6], [1, 4, 4]])  # 6 and 4 tokens after merging 2 × 2 patches
    sequences = [
        torch.tensor([1, 2, 82, *[80] * 6, 83, 3, 4, 5]),
        torch.tensor([6, 7, 8]),
        torch.tensor([9, 82, *[80] * 4, 83, 10, 11]),
    ]
    pixels = torch.randn(24 + 16, 3 * 2 * 4 * 4)
    images = [(pixels[:24], grids[:1]), None, (pixels[24:], grids[1:])]
    alone, positions = [], []
    for sequence, image in zip(sequences, images, strict=True):
        kinds = (sequence == 80).int()[None]
        grid = None if image is None else image[1]
        places = model.model.get_rope_index(sequence[None], mm_token_type_ids=kinds, image_grid_thw=grid)[0][:, 0]
        positions.append(torch.cat([torch.arange(len(sequence))[None], places]))
        given = {} if image is None else {"pixel_values": image[0], "image_grid_thw": grid, "mm_token_type_ids": kinds}
        alone.append(model(input_ids=sequence[None], **given).logits[0])
    packed = pack(sequences, positions)
    logits = model(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        attention_mask=packed.block_mask(torch.float32),
        pixel_values=pixels,
        image_grid_thw=grids,
    ).logits[0]
    for part, wanted in zip(split(packed, logits), alone, strict=True):
        torch.testing.assert_close(part, wanted, atol=1e-5, rtol=1e-5)


def test_flash_attention_separates_them_by_length():
    if not torch.cuda.is_available():
        raise unittest.SkipTest("flash attention needs a GPU")
    try:
        import flash_attn  # noqa: F401
    except ImportError as error:
        raise unittest.SkipTest(f"no flash attention here: {error}") from error
    model, sequences = tiny("flash_attention_2", torch.bfloat16).cuda(), [part.cuda() for part in ids()]
    packed = pack(sequences)
    made = model(input_ids=packed.input_ids, position_ids=packed.position_ids, **packed.flash_arguments()).logits[0]
    for part, sequence in zip(split(packed, made), sequences, strict=True):
        torch.testing.assert_close(part, model(input_ids=sequence[None]).logits[0], atol=0.05, rtol=0.05)
