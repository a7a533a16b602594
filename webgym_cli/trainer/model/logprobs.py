"""Log-probabilities and entropies from hidden states, without materialising the logits of all tokens.

At 32,000 tokens and a vocabulary of 152,000, float32 logits are 19 GB, and autograd would keep several copies. Here
they exist for one chunk of tokens at a time, forward and again backward; between them only the inputs are kept.
"""

from __future__ import annotations

from typing import Any

import torch

from webgym_cli.records.sampling import Sampling
from webgym_cli.util.optional import map_known

# The model's own distribution.
UNTOUCHED = Sampling(temperature=1.0)


def token_log_probs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    sampling: Sampling = UNTOUCHED,
    chunk: int = 1024,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probs [K] of the labels and the entropies [K] of the distributions, float32, in nats.

    `hidden` [K, H] are the states that predict the tokens: those one position before (`Experience.before`).
    `weight` [V, H] and `bias` [V] are the output layer's. `labels` [K] are token ids. Logits are computed in the type
    of the inputs, as a model does, the rest in float32. `chunk` tokens at a time hold chunk · V · 4 bytes a few times.

    The distribution is the one that was sampled from: divided by the temperature, and renormalised over what `sampling`
    leaves. A label outside of that (other weights sampled it) is kept beside it, so that its probability
    stays above 0; what else is left out has neither probability nor gradient. Raises `ValueError` for a temperature of
    0, at which no sampled token has a log-prob.
    """
    if sampling.greedy:
        raise ValueError("log-probs at temperature 0 say nothing: sample at a temperature above 0 for training")
    if len(hidden) != len(labels) or chunk < 1:
        raise ValueError(f"{len(hidden)} hidden states for {len(labels)} labels, in chunks of {chunk}")
    outputs = _TokenLogProbs.apply(hidden, weight, bias, labels, sampling, chunk)
    return outputs[0], outputs[1]


class _TokenLogProbs(torch.autograd.Function):  # type: ignore[misc]
    """The function above with its own backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        sampling: Sampling,
        chunk: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Work through the chunks; keep only the inputs and the entropies."""
        log_probs = torch.empty(len(labels), dtype=torch.float32, device=hidden.device)
        entropies = torch.empty_like(log_probs)
        for start in range(0, len(labels), chunk):
            part = slice(start, start + chunk)
            logs = _distribution(hidden[part], weight, bias, labels[part], sampling)
            log_probs[part] = logs.gather(-1, labels[part, None])[:, 0]
            entropies[part] = torch.special.entr(logs.exp()).sum(-1)
        ctx.save_for_backward(hidden, weight, bias, labels, entropies)
        ctx.sampling, ctx.chunk = sampling, chunk
        ctx.set_materialize_grads(False)
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, by_log_prob: torch.Tensor | None, by_entropy: torch.Tensor | None) -> tuple[Any, ...]:
        """Recompute the logits chunk by chunk, and from them the gradients.

        With p the distribution: d log p[label] / d logit = one-hot - p, d entropy / d logit = -p · (log p + entropy).
        """
        hidden, weight, bias, labels, entropies = ctx.saved_tensors
        of_hidden = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        # accumulate in float32: half precision would lose small terms over many chunks
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros_like(bias, dtype=torch.float32) if ctx.needs_input_grad[2] else None
        for start in range(0, len(labels), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            logs = _distribution(hidden[part], weight, bias, labels[part], ctx.sampling)
            first = None if by_log_prob is None else by_log_prob[part, None]
            second = None if by_entropy is None else by_entropy[part, None]
            slopes = _slopes(logs, labels[part, None], entropies[part, None], first, second) / ctx.sampling.temperature
            if of_bias is not None:
                of_bias += slopes.sum(0)
            slopes = slopes.to(hidden.dtype)
            if of_hidden is not None:
                of_hidden[part] = slopes @ weight
            if of_weight is not None:
                of_weight += slopes.T @ hidden[part]
        of_weight = map_known(lambda total: total.to(weight.dtype), of_weight)
        of_bias = map_known(lambda total: total.to(bias.dtype), of_bias)
        return of_hidden, of_weight, of_bias, None, None, None


def _distribution(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, labels: torch.Tensor, sampling: Sampling
) -> torch.Tensor:
    """Return [n, V] float32 log-probs; -inf for tokens that can't be sampled."""
    logits = torch.nn.functional.linear(hidden, weight, bias).float() / sampling.temperature
    if sampling.truncated:
        left = sampled_mask(logits, sampling).scatter(-1, labels[:, None], True)
        logits = logits.masked_fill(~left, -torch.inf)
    return logits.log_softmax(-1)


def _slopes(
    logs: torch.Tensor,
    labels: torch.Tensor,
    entropy: torch.Tensor,
    by_log_prob: torch.Tensor | None,
    by_entropy: torch.Tensor | None,
) -> torch.Tensor:
    """Return [n, V]: the gradient of the logits; `labels`, `entropy` and the gradients of the outputs are [n, 1]."""
    probabilities = logs.exp()
    slopes = torch.zeros_like(logs)
    if by_log_prob is not None:
        slopes = (-by_log_prob * probabilities).scatter_add(-1, labels, by_log_prob)
    if by_entropy is not None:
        finite = logs.masked_fill(probabilities == 0, 0.0)
        slopes = slopes - by_entropy * probabilities * (finite + entropy)
    return slopes


def sampled_mask(logits: torch.Tensor, limits: Sampling) -> torch.Tensor:
    """Return [n, V] bool: the tokens that can be sampled; logits [n, V] are already divided by the temperature.

    First min-p, then top-k, then top-p of the remaining tokens, renormalised: vLLM's order, by its rules.
    """
    left = logits
    if limits.min_p > 0:
        probabilities = left.softmax(-1)
        floor = limits.min_p * probabilities.amax(-1, keepdim=True)
        left = left.masked_fill(probabilities < floor, -torch.inf)
    if 0 < limits.top_k < left.shape[-1]:
        least = left.topk(limits.top_k).values[:, -1:]
        left = left.masked_fill(left < least, -torch.inf)
    if limits.top_p < 1:
        ordered, places = left.sort(dim=-1)
        dropped = ordered.softmax(-1).cumsum(-1) <= 1 - limits.top_p
        dropped[:, -1] = False
        left = left.masked_fill(torch.zeros_like(dropped).scatter(-1, places, dropped), -torch.inf)
    return ~left.isneginf()
