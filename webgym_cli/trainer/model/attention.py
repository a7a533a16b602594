"""Attention over packed sequences without flash attention: each sequence by itself, so that no L² mask is needed."""

from __future__ import annotations

from typing import Any

import torch

from webgym_cli.trainer.options import TrainingError

# The attention implementation's name in transformers' registry.
BLOCKS = "webgym_blocks"


def register() -> None:
    """Register with transformers, which builds no mask for an attention without a mask function."""
    from transformers import AttentionInterface

    AttentionInterface.register(BLOCKS, blocks)


def blocks(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    cu_seq_lens_q: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return [1, L, H, D]: causal attention within each sequence of a packed row; otherwise as `sdpa`.

    `query` [1, H, L, D], `key` and `value` the same with fewer heads perhaps; `cu_seq_lens_q` [S + 1] holds the
    cumulative sequence lengths. Raises `TrainingError` for a sequence that is longer than a layer's window.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if cu_seq_lens_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0], None
    lengths: list[int] = cu_seq_lens_q.diff().tolist()
    if sliding_window is not None and max(lengths) > sliding_window:
        raise TrainingError(
            f"model.use_remove_padding: a layer sees {sliding_window} tokens, a sequence has {max(lengths)}: without "
            "flash attention set it to false"
        )
    parts = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
    outputs = [sdpa_attention_forward(module, q, k, v, None, **options)[0] for q, k, v in parts]
    return torch.cat(outputs, dim=1), None
