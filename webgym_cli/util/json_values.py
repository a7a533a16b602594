"""Values of parsed JSON in the shape that a reader expects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from webgym_cli.util.strict_json import encode_json


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object itself, an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse a line's JSON object; another value is an empty one, and NaN, which older versions wrote, is null."""
    return as_object(json.loads(line, parse_constant=lambda _: None))


def as_list(value: Any) -> list[Any]:
    """Return a list's or tuple's items, any other value as the only item."""
    return list(value) if isinstance(value, list | tuple) else [value]


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
