import unittest

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from webgym_cli.records.sampling import Sampling
from webgym_cli.trainer.model.logprobs import UNTOUCHED, sampled_mask, token_log_probs

check = unittest.TestCase()
K, H, V = 23, 16, 101


def layer(dtype=torch.float32, tokens=K):
    hidden = torch.randn(tokens, H).to(dtype).requires_grad_()
    weight = torch.randn(V, H).to(dtype).requires_grad_()
    bias = torch.randn(V).to(dtype).requires_grad_()
    return hidden, weight, bias, torch.randint(V, (tokens,))


def full(hidden, weight, bias, labels, sampling=UNTOUCHED):
    """The same with all logits at once and torch's own derivatives."""
    logits = torch.nn.functional.linear(hidden, weight, bias).float() / sampling.temperature
    if sampling.truncated:
        left = sampled_mask(logits.detach(), sampling).scatter(-1, labels[:, None], True)
        logits = logits.masked_fill(~left, -torch.inf)
    logs = logits.log_softmax(-1)
    summands = torch.where(logs.isneginf(), 0.0, logs.exp() * logs.masked_fill(logs.isneginf(), 0.0))
    return logs.gather(-1, labels[:, None])[:, 0], -summands.sum(-1)


def compare(chunk, sampling=UNTOUCHED, use_bias=True):
    hidden, weight, bias, labels = layer()
    inputs = [hidden, weight, bias] if use_bias else [hidden, weight]
    bias = bias if use_bias else None
    towards = torch.randn(K), torch.randn(K)
    result = token_log_probs(hidden, weight, labels, bias=bias, sampling=sampling, chunk=chunk)
    wanted = full(hidden, weight, bias, labels, sampling)
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    grads = [torch.autograd.grad(pair, inputs, towards) for pair in (result, wanted)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_chunks_equal_the_full_computation():
    for chunk in (1, 5, K, 1000):
        compare(chunk)
    compare(5, use_bias=False)


def test_renormalised_over_what_is_sampled_from():
    compare(5, Sampling(temperature=0.7, top_k=9))
    compare(5, Sampling(temperature=1.3, top_p=0.8))
    compare(5, Sampling(temperature=1, top_k=30, top_p=0.9, min_p=0.02))


def test_what_can_be_sampled_has_probability_1_together():
    hidden, weight, _, _ = layer(tokens=1)
    limits = Sampling(temperature=1, top_k=5)
    inside = sampled_mask(hidden @ weight.T, limits)[0].nonzero()[:, 0]
    repeated = hidden.expand(len(inside), -1)
    log_probs, entropy = token_log_probs(repeated, weight, inside, sampling=limits)
    torch.testing.assert_close(log_probs.exp().sum(), torch.tensor(1.0))
    torch.testing.assert_close(entropy[0], -(log_probs.exp() * log_probs).sum())


def test_a_label_outside_is_kept_beside_the_others():
    logits = torch.tensor([3.0, 2.0, 1.0])
    limits = Sampling(temperature=1, top_k=1)
    result, _ = token_log_probs(torch.ones(1, 1), logits[:, None], torch.tensor([2]), sampling=limits)
    torch.testing.assert_close(result, torch.tensor([1.0 - torch.logsumexp(torch.tensor([3.0, 1.0]), 0)]))


def test_log_probs_alone_and_frozen_output_layers():
    hidden, weight, bias, labels = layer()
    weight, bias = weight.detach(), bias.detach()
    log_probs, entropy = token_log_probs(hidden, weight, labels, bias=bias, chunk=4)
    (grad,) = torch.autograd.grad(log_probs.sum(), hidden)
    wanted, _ = full(hidden, weight, bias, labels)
    torch.testing.assert_close(grad, torch.autograd.grad(wanted.sum(), hidden)[0], atol=1e-4, rtol=1e-4)
    assert entropy.requires_grad


def test_half_precision_equals_the_full_computation_in_half_precision():
    hidden, weight, bias, labels = layer(torch.bfloat16)
    result, _ = token_log_probs(hidden, weight, labels, bias=bias, chunk=4)
    wanted, _ = full(hidden, weight, bias, labels)
    torch.testing.assert_close(result, wanted)
    grads = [torch.autograd.grad(value.sum(), [hidden, weight]) for value in (result, wanted)]
    for one, other in zip(*grads, strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one, other, atol=0.1, rtol=0.05)


class Largest(TorchDispatchMode):
    """Remembers how many elements the largest tensor had that an operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                self.elements = max(self.elements, value.numel())
        return result


def test_the_logits_of_all_tokens_never_exist():
    hidden, weight, _, labels = layer(tokens=500)
    with Largest() as seen:
        log_probs, entropy = token_log_probs(hidden, weight, labels, chunk=20)
        (log_probs.sum() + entropy.sum()).backward()
    assert seen.elements <= max(20 * V, V * H, 500 * H)
    with Largest() as seen:
        full(hidden, weight, None, labels)
    assert seen.elements >= 500 * V


def test_no_tokens():
    hidden, weight, _, labels = layer(tokens=0)
    log_probs, entropy = token_log_probs(hidden, weight, labels)
    assert log_probs.shape == entropy.shape == (0,)
    log_probs.sum().backward()
    assert not weight.grad.any()


def test_what_has_no_log_prob_is_refused():
    hidden, weight, _, labels = layer()
    with check.assertRaisesRegex(ValueError, "temperature 0"):
        token_log_probs(hidden, weight, labels, sampling=Sampling(temperature=0))
    with check.assertRaisesRegex(ValueError, "23 hidden states for 22 labels"):
        token_log_probs(hidden, weight, labels[1:])
