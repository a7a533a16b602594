"""Truncated sampling: top-k, top-p and min-p masks, in vLLM's order and by its rules."""

from __future__ import annotations

import torch

from webgym_cli.records.sampling import Sampling


def sampled_mask(logits: torch.Tensor, limits: Sampling) -> torch.Tensor:
    """Return [n, V] bool: the tokens that can be sampled; logits [n, V] are already divided by the temperature.

    First min-p, then top-k, then top-p of the remaining tokens, renormalised.
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
