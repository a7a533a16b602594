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


def find_changed_logits(config: Mapping[str, Any]) -> str:
    """Return `KEY=VALUE` by which a model changes the logits that log-probs are computed from; empty without any."""
    text = config.get("text_config") or config
    return next((f"{key}={text[key]}" for key in _LOGIT_KEYS if text.get(key) not in (None, 1)), "")


def find_mixing_layer(config: Mapping[str, Any]) -> str:
    """Return the kind of a model's layers whose state passes from a packed sequence to the next one; empty without."""
    kinds = (config.get("text_config") or config).get("layer_types") or ()
    return next((kind for kind in kinds if kind in ("linear_attention", "conv", "mamba", "hybrid")), "")
