"""Values of parsed JSON in the shape that a reader expects."""

from __future__ import annotations

from typing import Any

from webgym_cli.util.strict_json import encode_json


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object itself, an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list's or tuple's items, any other value as the only item."""
    return list(value) if isinstance(value, list | tuple) else [value]


def as_text(value: Any, **options: Any) -> str:
    """Return a text itself, any other value as JSON."""
    return value if isinstance(value, str) else encode_json(value, **options)
