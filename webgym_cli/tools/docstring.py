"""What a docstring says of a function and of its parameters: Google's and reST's style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

_ARGUMENTS = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_SECTION = re.compile(r"^[A-Z][A-Za-z ]*:\s*$")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_REST = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
_REST_FIELD = re.compile(r"^:\w+.*:")


def read_docstring(documented: Callable[..., object] | type) -> tuple[str, dict[str, str]]:
    """Return the description (all before the first section, line ends kept) and the text of each parameter."""
    lines = inspect.cleandoc(documented.__doc__ or "").splitlines()
    end = next((number for number, line in enumerate(lines) if _SECTION.match(line) or _REST_FIELD.match(line)), None)
    description = "\n".join(lines[:end]).strip()
    return description, {**_rest(lines), **_google(lines)}


def _google(lines: list[str]) -> dict[str, str]:
    start = next((number for number, line in enumerate(lines) if _ARGUMENTS.match(line)), None)
    descriptions: dict[str, str] = {}
    if start is None:
        return descriptions
    margin, name = 0, ""
    for line in lines[start + 1 :]:
        if line and not line[0].isspace():
            break
        indent, text = len(line) - len(line.lstrip()), line.strip()
        margin = margin or indent
        if text and indent <= margin and (match := _GOOGLE.match(text)):
            name, descriptions[match[1]] = match[1], match[2]
        elif text and name:
            descriptions[name] = f"{descriptions[name]} {text}".strip()
    return descriptions


def _rest(lines: list[str]) -> dict[str, str]:
    descriptions: dict[str, str] = {}
    name = ""
    for line in lines:
        if match := _REST.match(line.strip()):
            name, descriptions[match[1]] = match[1], match[2]
        elif _REST_FIELD.match(line.strip()) or not line.strip():
            name = ""
        elif name:
            descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions
