"""A term of a mini-batch's loss, from any objective."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LossTerm:
    """A micro-batch's term of the mini-batch's loss."""

    loss: torch.Tensor
    """A scalar to call `backward` on."""
    metrics: dict[str, torch.Tensor]
    """Detached scalars by their name in the logs; sum them over the micro-batches and processes."""
