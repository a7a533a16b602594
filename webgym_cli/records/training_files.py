"""Names of the files of a training, and of a model's parts, that the trainer writes and webgym reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The log of a training, a line an optimizer step.
TRAINER_LOG = "trainer_log.jsonl"
# Written last into a checkpoint: its presence means that the checkpoint is complete.
TRAINER_STATE = "trainer_state.json"
# The folder in a checkpoint with the exact weights and Adam moments of our own trainer.
RL_STATE = "rl_state"
# The folder in a checkpoint with the unmerged LoRA adapter in PEFT's format, and its weights file.
ADAPTER = "adapter"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# Name fragments of the vision tower's parameters.
VISION = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")
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
