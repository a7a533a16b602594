"""Names shared by the trainer and the rest of webgym: files of a training, model parts, DeepSpeed settings."""

from __future__ import annotations

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


def zero_stage(deepspeed: dict[str, Any]) -> int:
    """Return the ZeRO stage of a DeepSpeed configuration."""
    return int(deepspeed.get("zero_optimization", {}).get("stage", 0))


def is_offloaded(deepspeed: dict[str, Any], part: str) -> bool:
    """Return whether DeepSpeed offloads `part` (`optimizer` or `param`) to the CPU."""
    zero = deepspeed.get("zero_optimization", {})
    return bool(zero.get(f"offload_{part}", {}).get("device", "none") != "none")
