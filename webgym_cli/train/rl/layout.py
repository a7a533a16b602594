"""What the trainer and the rest of webgym both know: files of a training, parts of a model, DeepSpeed's settings."""

from __future__ import annotations

from typing import Any

# The log of a training, a line an optimizer step.
TRAINER_LOG = "trainer_log.jsonl"
# Written last into a checkpoint: its presence means that the checkpoint is whole.
TRAINER_STATE = "trainer_state.json"
# The folder in a checkpoint with the exact weights and Adam moments that our own trainer left.
RL_STATE = "rl_state"
# The folder in a checkpoint that keeps a LoRA adapter by itself, in PEFT's format, and the file of its weights.
ADAPTER = "adapter"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# Name fragments of the vision tower's parameters.
VISION = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")


def zero_stage(deepspeed: dict[str, Any]) -> int:
    """Return the ZeRO stage of a DeepSpeed configuration."""
    return int(deepspeed.get("zero_optimization", {}).get("stage", 0))


def is_offloaded(deepspeed: dict[str, Any], part: str) -> bool:
    """Tell whether DeepSpeed keeps the `optimizer`, or the `param`eters, on the CPU."""
    zero = deepspeed.get("zero_optimization", {})
    return bool(zero.get(f"offload_{part}", {}).get("device", "none") != "none")
