"""Models that policy gradients would train by wrong log-probs, as their configuration tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Keys of a model's configuration by which it changes its output layer's logits: of Gemma, Granite, Cohere and Falcon.
_LOGIT_KEYS = ("final_logit_softcapping", "logits_scaling", "logit_scale", "lm_head_multiplier")
# Layers whose state passes from a packed sequence to the next one.
_MIXING = ("linear_attention", "conv", "mamba", "hybrid")


def find_unfit(config: Mapping[str, Any], *, packed: bool) -> tuple[str, str]:
    """Return why policy gradients would train a model by wrong log-probs, and the setting that trains it; else empty.

    `packed`: whether sequences are packed.
    """
    text = config.get("text_config") or config
    for key in _LOGIT_KEYS:
        if text.get(key) not in (None, 1):
            return f"its config.json has {key}={text[key]}, which changes the logits", "train.algorithm=sft"
    for kind in text.get("layer_types") or ():
        if packed and kind in _MIXING:
            return f"its {kind} layers mix packed sequences", "rl.model.use_remove_padding=false"
    return "", ""
