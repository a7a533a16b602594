"""Task files that are one JSON array: what stands in them, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

_BOM = b"\xef\xbb\xbf"


class BadArrayError(ValueError):
    """A file that begins like a JSON array is none."""


def is_array_start(content: bytes) -> bool:
    """Tell whether a file that begins like this is one array, and not JSON Lines."""
    return content.removeprefix(_BOM).lstrip().startswith(b"[")


def read_array(content: bytes) -> Iterator[tuple[int, Any]]:
    """Return the records of an array with their numbers, from 1. Raises `BadArrayError` at once."""
    try:
        values = from_json(content.removeprefix(_BOM), cache_strings="keys")
    except ValueError as error:
        raise BadArrayError(f"not JSON: {error}") from None
    if not isinstance(values, list):
        raise BadArrayError("not one JSON array")
    return iter(enumerate(values, 1))
