"""Values that are there on a condition only, and items by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T", bound=str | float | list[Any] | tuple[Any, ...] | dict[Any, Any])


def when(condition: object, value: T) -> T:
    """Return a part of a text, list, dict or sum if the condition holds, else an empty one of its type, or 0."""
    return value if condition else type(value)()


def map_known(function: Callable[[A], B], value: A | None) -> B | None:
    """Return a function's result for a value that is known, else None."""
    return None if value is None else function(value)


def known_or(value: A | None, default: A) -> A:
    """Return a value that is known, else the default; unlike `or` it keeps 0, false and what is empty."""
    return default if value is None else value


def group_by(items: Iterable[A], key: Callable[[A], B]) -> dict[B, list[A]]:
    """Return items by their key, in order of first occurrence; the items of a key in order."""
    groups: dict[B, list[A]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
