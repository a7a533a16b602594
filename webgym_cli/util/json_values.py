"""JSON: its strict encoding, digests, and values of parsed JSON in the shape that a reader expects."""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any


def encode_json(value: Any, *, ensure_ascii: bool = False, **options: Any) -> str:
    """Return a value as strict JSON: NaN and infinite numbers, which JSON lacks, become null."""
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_to_finite(value), ensure_ascii=ensure_ascii, allow_nan=False, **options)


def _to_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key) if isinstance(key, float) else key: _to_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object itself, an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse a line's JSON object; another value is an empty one, and NaN, which older versions wrote, is null."""
    return as_object(json.loads(line, parse_constant=lambda _: None))


def as_list(value: Any) -> list[Any]:
    """Return a list's or tuple's items, any other value as the only item."""
    return list(value) if isinstance(value, list | tuple) else [value]


def parse_nested(value: Any) -> Any:
    """Return the list or object that a text is, in JSON or as Python writes it; any other value itself.

    Tables have no other way to hold one in a cell.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return parse(value)
    return value


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield the values within objects and lists at any depth; a value that is neither is the only one."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        yield value
        return
    for item in value:
        yield from list_leaves(item)


def as_text(value: Any, **options: Any) -> str:
    """Return a text itself, any other value as JSON."""
    return value if isinstance(value, str) else encode_json(value, **options)


def digest_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
