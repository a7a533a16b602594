"""Text from outside, made harmless for files, pages and terminals."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

# User and password before the host of a URL; a password may hold an `@` of its own.
_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/?#\s,@]*(?:@[^/?#\s,@]*)*@", re.IGNORECASE)
# What a terminal obeys and HTML may not hold; tab and line feed are harmless.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Categories of Unicode that a terminal obeys or can't show.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `1,200 steps`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def hide_passwords(value: Any) -> Any:
    """Return a value of JSON in which no URL has a user and a password."""
    if isinstance(value, str):
        return _PASSWORD.sub(r"\1", value) if "@" in value else value
    if isinstance(value, dict):
        return {key: hide_passwords(item) for key, item in value.items()}
    return [hide_passwords(item) for item in value] if isinstance(value, list | tuple) else value


def replace_control(text: str) -> str:
    """Return text of several lines without control characters, for a page or a table."""
    # most of it has none, and a page's embedded images are megabytes
    return text if _CONTROL.search(text) is None else type(text)(_CONTROL.sub("·", text))


def escape_control(text: str) -> str:
    """Return text as one line that can't move the cursor, colour anything or turn the line's direction."""
    return "".join("·" if unicodedata.category(letter) in _HIDDEN else letter for letter in text)
