"""What a DeepSpeed configuration says, asked in one place."""

from __future__ import annotations

from typing import Any


def zero_stage(deepspeed: dict[str, Any]) -> int:
    """Return the ZeRO stage of a DeepSpeed configuration."""
    return int(deepspeed.get("zero_optimization", {}).get("stage", 0))


def is_offloaded(deepspeed: dict[str, Any], part: str) -> bool:
    """Return whether DeepSpeed offloads `part` (`optimizer` or `param`) to the CPU."""
    zero = deepspeed.get("zero_optimization", {})
    return bool(zero.get(f"offload_{part}", {}).get("device", "none") != "none")
