"""YAML whose aliases can't expand to more than a person writes."""

from __future__ import annotations

from typing import Any

import yaml

# Maximum number of values after the expansion of aliases: nine levels of nine aliases are 387 million.
MAX_VALUES = 100_000


def load_yaml(text: str) -> Any:
    """Parse a YAML text. Raises `yaml.YAMLError`, also where aliases repeat too many values."""
    value = yaml.safe_load(text)
    if _count(value, {}) > MAX_VALUES:
        raise yaml.YAMLError(f"more than {MAX_VALUES} values, with what its aliases repeat")
    return value


def _count(value: Any, known: dict[int, int]) -> int:
    """Return the number of values; each object is walked once, and what contains itself counts as one."""
    if not isinstance(value, dict | list | set):
        return 1
    if id(value) not in known:
        known[id(value)] = 1
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] += sum(_count(part, known) for part in parts)
    return known[id(value)]
