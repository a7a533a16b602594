"""Key names: maps the names that policies use to those of Playwright."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

_NAMES = (
    *("Alt", "Control", "Meta", "Shift", "ArrowDown", "ArrowLeft", "ArrowRight", "ArrowUp", "Home", "End", "PageDown"),
    *("PageUp", "Backspace", "Delete", "Enter", "Escape", "Insert", "Space", "Tab"),
    *(f"F{number}" for number in range(1, 13)),
)
_SYNONYMS = {
    **{name.lower(): name for name in _NAMES},
    **{way.lower(): f"Arrow{way}" for way in ("Down", "Left", "Right", "Up")},
    "ctrl": "Control",
    **dict.fromkeys(("cmd", "command", "super", "win"), "Meta"),
    "option": "Alt",
    "return": "Enter",
    "esc": "Escape",
    "del": "Delete",
    "pgdn": "PageDown",
    "pgup": "PageUp",
    "\n": "Enter",
    "\r": "Enter",
    "\t": "Tab",
}
# Splits "ctrl+a" into "ctrl" and "a"; a plus sign itself is also a name.
_PART = re.compile(r"[^+]+|(?<=\+)\+|^\+$")


def find_key(name: str) -> str | None:
    """Return Playwright's name of a key given as `Enter`, `enter`, `page_down` or `a`; None for an unknown key."""
    if len(name) == 1:
        return name if name.isascii() and name.isprintable() else _SYNONYMS.get(name)
    return _SYNONYMS.get(re.sub(r"[\s_-]", "", name).lower())


def combine_keys(names: Sequence[str]) -> str:
    """Return keys that are pressed together, from `["ctrl", "a"]` or `["ctrl+a"]`. Raises `ValueError` for no key."""
    parts = list(chain.from_iterable(_PART.findall(name.strip()) or [name] for name in names))
    keys = [find_key(part) for part in parts]
    if unknown := [part for part, key in zip(parts, keys, strict=True) if key is None]:
        raise ValueError(f"there is no key {unknown[0][:40]!r}; keys are called like Enter, Control, ArrowDown, F5, a")
    return "+".join(key for key in keys if key)
