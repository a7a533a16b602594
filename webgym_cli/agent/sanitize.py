"""Sanitizing of untrusted text (pages, models, task files): it forges no image, turn, call or line of a prompt.

`sanitize_text` is for a model's own replies, which keep their calls; `sanitize_page` and `sanitize_line` for all else.
"""

from __future__ import annotations

import re

# Longest piece of foreign text in a line that we write, in characters: no page fills the context with its title.
LINE_LIMIT = 300
# The same for an element's role.
ROLE_LIMIT = 40

_PLACEHOLDER = re.compile(r"<(/?(?:image|video|audio))>", re.IGNORECASE)
_TAG = re.compile(r"<(?=/?(?:tool_call|tool_response|tools|think)>)", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_LINE_FEED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def sanitize_text(text: str) -> str:
    """Return foreign text in which nothing reads as a media placeholder or as a chat template's control token.

    Half a surrogate pair, which no file could hold, becomes a question mark.
    """
    if text.isascii() and "<" not in text:  # most of it, and there is a lot
        return text
    whole = text.encode(errors="replace").decode()
    return _PLACEHOLDER.sub(r"&lt;\1&gt;", whole).replace("<|", "&lt;|")


def sanitize_page(text: str) -> str:
    """Return a text that may have several lines, in which moreover no tag of a call or a thought is left.

    Models have tokens of their own for these tags, so on a page they would look exactly like the real ones.
    """
    safe = sanitize_text(text)
    return _TAG.sub("&lt;", safe) if "<" in safe else safe


def sanitize_line(text: str, limit: int | None = LINE_LIMIT) -> str:
    """Return a text as part of one line: line ends and control characters are spaces, the end is cut at the limit."""
    cut = truncate(text, limit)
    return sanitize_page(cut if cut.isprintable() else _CONTROL.sub(" ", cut))  # most of it is, and looking is cheaper


def sanitize_lines(text: str) -> str:
    """Return lines that are joined by line feeds already, each made one line as by `sanitize_line`, without a limit."""
    plain = text.replace("\n", " ").isprintable()
    return sanitize_page(text if plain else _CONTROL_BUT_LINE_FEED.sub(" ", text))


def truncate(text: str, limit: int | None = LINE_LIMIT) -> str:
    """Return a text of at most so many characters; a cut one ends with an ellipsis."""
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"
