"""Tool calls as written by a policy."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

from pydantic import Field, field_validator

from webgym_cli.records.base import Record

# Maximum nesting depth of a call's arguments.
MAX_DEPTH = 32


class ToolCall(Record):
    """One tool call. Whether the tool exists and accepts the arguments is checked elsewhere."""

    name: str = Field(min_length=1, max_length=200)
    arguments: dict[str, Any]
    """Arguments by name, as JSON values."""

    @field_validator("arguments")
    @classmethod
    def _storable(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        if measure_depth(arguments) > MAX_DEPTH:
            raise ValueError(f"arguments are nested more than {MAX_DEPTH} deep")
        # ValueError: not JSON, or an unpaired surrogate
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
        return arguments


def measure_depth(value: Any) -> int:
    """Return the nesting depth of a JSON value, without recursion, which deep values would exhaust."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = list(chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level))
    return depth
