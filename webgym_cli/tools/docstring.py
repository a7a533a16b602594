"""Parser of docstrings in Google's and reST's style: the description, and the texts of the parameters."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable

_SECTION = re.compile(r"^(?:[A-Z][A-Za-z ]*:\s*$|:\w+.*:)", re.MULTILINE)
_ARGUMENTS = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t].*\n?|\n)*)", re.MULTILINE)
# A parameter, and its text up to the next one.
_GOOGLE = re.compile(
    r"^\*{0,2}(\w+)[ \t]*(?:\([^)\n]*\))?[ \t]*:(.*(?:\n(?!\*{0,2}\w+[ \t]*(?:\([^)\n]*\))?[ \t]*:).*)*)", re.MULTILINE
)
_REST = re.compile(
    r"^[ \t]*:param[ \t]+(?:[^:\n]*[ \t])?(\w+)[ \t]*:(.*(?:\n(?![ \t]*(?::\w+.*:|$)).*)*)", re.MULTILINE
)


def read_docstring(documented: Callable[..., object] | type) -> tuple[str, dict[str, str]]:
    """Return the description (all before the first section, line ends kept) and the text of each parameter."""
    text = inspect.cleandoc(documented.__doc__ or "")
    arguments = _ARGUMENTS.search(text)
    entries = _REST.findall(text) + (_GOOGLE.findall(textwrap.dedent(arguments[1])) if arguments else [])
    description = _SECTION.split(text, maxsplit=1)[0].strip()
    return description, {name: " ".join(words.split()) for name, words in entries}
