"""What the update step makes of a GPU: the models it is shown with, their arithmetic, and what devices can do."""

from __future__ import annotations

from typing import Any

VOCABULARY = 151_936
MODELS: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "Qwen2.5-1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
}
"""The published sizes; the weights are random."""
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
}
_PEAKS = {"B200": 2250e12, "H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bf16 FLOP/s by the vendor's data sheets (SXM)."""


def peak(gpu: str) -> float | None:
    """Return the bf16 peak of a device in FLOP/s by its name; None where it isn't known."""
    return next((flops for name, flops in _PEAKS.items() if name in gpu), None)


def step_flops(sizes: dict[str, Any], lengths: list[int], trained: int) -> float:
    """Return the FLOP that an update of sequences needs, forward and backward, 3 times the forward pass.

    Counted: a layer's matrices for each token, what causal attention looks at within each sequence, and the output
    layer for the tokens that are trained. What is computed again in the backward pass, and what is computed for padding
    or masked out, is no need.
    """
    hidden, layers = sizes["hidden_size"], sizes["num_hidden_layers"]
    head = hidden // sizes["num_attention_heads"]
    attention = hidden * hidden * 2 + hidden * head * sizes["num_key_value_heads"] * 2
    weights = layers * (attention + 3 * hidden * sizes["intermediate_size"])
    seen = sum(length * (length + 1) // 2 for length in lengths)
    forward = 2 * weights * sum(lengths) + 4 * layers * hidden * seen + 2 * hidden * sizes["vocab_size"] * trained
    return 3.0 * float(forward)
