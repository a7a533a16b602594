"""Truncated sampling: top-k, top-p and min-p masks, in vLLM's order and by its rules."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Truncation:
    """Sampling limits. Raises `ValueError` for impossible ones."""

    top_k: int = 0
    """Only the k most probable tokens (ties with the last of them stay); 0 or -1: all."""
    top_p: float = 1.0
    """Only the most probable tokens that reach this probability together; 1: all."""
    min_p: float = 0.0
    """Only tokens that are at least this probable relative to the most probable one; 0: all."""

    def __post_init__(self) -> None:
        if self.top_k < -1 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise ValueError("top_k must be -1 or more, top_p in (0, 1] and min_p in [0, 1]")

    @property
    def off(self) -> bool:
        """Whether all tokens can be sampled."""
        return self.top_k < 1 and self.top_p == 1 and self.min_p == 0


def sampled_mask(logits: torch.Tensor, limits: Truncation) -> torch.Tensor:
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
