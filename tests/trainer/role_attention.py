import unittest

import torch
from role_packing import split
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config

from webgym_cli.trainer.model.inputs import pack
from webgym_cli.trainer.model.model import BLOCKS, attend_in_blocks, register_blocks
from webgym_cli.trainer.options import TrainingError

check = unittest.TestCase()


def tiny(attention):
    """Return a Qwen3 of two layers with random weights."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": False}
    sizes = {"vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = Qwen3Config(**sizes, **heads)
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32).eval()


def test_packed_sequences_are_computed_as_if_each_stood_alone_and_so_are_their_gradients():
    register_blocks()
    model, sequences = tiny(BLOCKS), [torch.randint(90, (length,)) for length in (7, 3, 12, 1, 9)]
    packed = pack(sequences)
    logit = model(input_ids=packed.input_ids, position_ids=packed.position_ids, **packed.flash_arguments()).logits[0]
    (of_packed,) = torch.autograd.grad(logit.square().sum(), model.lm_head.weight)
    alone = [model(input_ids=sequence[None]).logits[0] for sequence in sequences]
    for part, wanted in zip(split(packed, logit), alone, strict=True):
        torch.testing.assert_close(part, wanted, atol=1e-5, rtol=1e-5)
    (of_each,) = torch.autograd.grad(sum(logits.square().sum() for logits in alone), model.lm_head.weight)
    torch.testing.assert_close(of_packed, of_each, atol=1e-4, rtol=1e-4)


def test_lines_that_are_not_packed_are_left_to_sdpa():
    register_blocks()
    line = torch.randint(90, (2, 9))
    torch.testing.assert_close(tiny(BLOCKS)(input_ids=line).logits, tiny("sdpa")(input_ids=line).logits)


def test_a_sequence_beyond_a_layer_s_window_is_refused():
    states = torch.randn(1, 2, 8, 4)
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)
    with check.assertRaisesRegex(TrainingError, "a layer sees 4 tokens, a sequence has 5"):
        attend_in_blocks(nn.Module(), states, states, states, None, cu_seq_lens_q=starts, sliding_window=4)
    result, _ = attend_in_blocks(nn.Module(), states, states, states, None, cu_seq_lens_q=starts, sliding_window=5)
    assert result.shape == (1, 8, 2, 4)
    torch.testing.assert_close(result[0, 3], states[0, :, 3])  # a sequence's first token sees itself alone
