"""What the update step makes of a GPU: the arithmetic that it needs, and what devices can do."""

from __future__ import annotations

from typing import Any

_PEAKS = {"B200": 2250e12, "H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bf16 FLOP/s by the vendor's data sheets (SXM)."""


def peak(gpu: str) -> float | None:
    """Return the bf16 peak of a device in FLOP/s by its name; None where it isn't known."""
    return next((flops for name, flops in _PEAKS.items() if name in gpu), None)


def step_flops(config: dict[str, Any], lengths: list[int], trained: int, *, adapter: bool = False) -> float:
    """Return the FLOP that an update of text sequences needs, forward and backward: 3 times the forward pass.

    Counted: a layer's matrices for each token, what causal attention looks at within each sequence, and the output
    layer for the tokens that are trained. What is computed again in the backward pass, and what is computed for padding
    or masked out, is no need. With an `adapter` the matrices have no gradients of their own: 2 times the forward pass.
    """
    sizes = config.get("text_config", config)
    hidden, layers, heads = sizes["hidden_size"], sizes["num_hidden_layers"], sizes["num_attention_heads"]
    head = sizes.get("head_dim") or hidden // heads
    attention = hidden * head * (heads + sizes["num_key_value_heads"]) * 2
    weights = layers * (attention + 3 * hidden * sizes["intermediate_size"])
    seen = sum(length * (length + 1) // 2 for length in lengths)
    matrices = 2 * weights * sum(lengths) + 2 * hidden * sizes["vocab_size"] * trained
    return float((2 if adapter else 3) * matrices + 3 * 4 * layers * heads * head * seen)
