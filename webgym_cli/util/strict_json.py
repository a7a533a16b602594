"""The encoder of the JSON that webgym writes from numbers that may not be finite."""

from __future__ import annotations

import json
import math
from typing import Any


def encode_json(value: Any, *, ensure_ascii: bool = False, **options: Any) -> str:
    """Return a value as strict JSON: NaN and infinite numbers, which JSON lacks, become null."""
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_to_finite(value), ensure_ascii=ensure_ascii, allow_nan=False, **options)


def _to_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _to_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _key(key: Any) -> Any:
    return str(key) if isinstance(key, float) else key
