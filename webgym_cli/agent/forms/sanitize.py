"""Sanitize untrusted text (pages, models, task files): it can't forge images, turns, calls or lines of a prompt.

`sanitize_text` is for a model's own replies, whose calls are kept; `sanitize_page` and `sanitize_line` for other text.
"""

from __future__ import annotations

import re

from webgym_cli.util.text import replace_surrogates, truncate

# Maximum length of untrusted text within a line, in characters, so that a page title can't fill the context.
LINE_LIMIT = 300
# Maximum length of an element's role, in characters.
ROLE_LIMIT = 40

_PLACEHOLDER = re.compile(r"<(/?(?:image|video|audio))>", re.IGNORECASE)
_TAG = re.compile(r"<(?=/?(?:tool_call|tool_response|tools|think)>)", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_LINE_FEED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def sanitize_text(text: str) -> str:
    """Escape media placeholders and the control tokens of chat templates.

    Unpaired surrogates, which can't be encoded as UTF-8, become question marks.
    """
    if text.isascii() and "<" not in text:  # fast path for most texts
        return text
    whole = replace_surrogates(text)
    return _PLACEHOLDER.sub(r"&lt;\1&gt;", whole).replace("<|", "&lt;|")


def sanitize_page(text: str) -> str:
    """Sanitize text of several lines: as `sanitize_text`, and escape the tags of tool calls and reasoning.

    Models have special tokens for these tags, so on a page they would be indistinguishable from real ones.
    """
    safe = sanitize_text(text)
    return _TAG.sub("&lt;", safe) if "<" in safe else safe


def sanitize_line(text: str, limit: int | None = LINE_LIMIT) -> str:
    """Sanitize text within a line: truncate it, and replace line breaks and control characters by spaces."""
    cut = truncate(text, limit)
    return sanitize_page(cut if cut.isprintable() else _CONTROL.sub(" ", cut))  # mostly printable, and cheaper to check


def sanitize_lines(text: str) -> str:
    """Sanitize lines joined by line feeds, each as by `sanitize_line` without a limit."""
    plain = text.replace("\n", " ").isprintable()
    return sanitize_page(text if plain else _CONTROL_BUT_LINE_FEED.sub(" ", text))
