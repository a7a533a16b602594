"""Reads DeepSpeed configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from webgym_cli.errors import SettingsError


def zero_stage(deepspeed: dict[str, Any]) -> int:
    """Return the ZeRO stage of a DeepSpeed configuration."""
    return int(deepspeed.get("zero_optimization", {}).get("stage", 0))


def is_offloaded(deepspeed: dict[str, Any], part: str) -> bool:
    """Return whether DeepSpeed offloads `part` (`optimizer` or `param`) to the CPU."""
    zero = deepspeed.get("zero_optimization", {})
    return bool(zero.get(f"offload_{part}", {}).get("device", "none") != "none")


def read_deepspeed_file(value: dict[str, Any] | str | Path | None) -> dict[str, Any] | None:
    """Return the DeepSpeed configuration of a file, or the given one. Raises `SettingsError` naming the file."""
    if value is None or isinstance(value, dict):
        return value
    file = Path(str(value))
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: DeepSpeed's settings can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{file}: not JSON: {error}") from None
    if not isinstance(loaded, dict):
        raise SettingsError(f"{file}: DeepSpeed's settings must be a JSON object")
    return loaded
