"""Sanitizing of untrusted text for files, pages and terminals, and formatting of counts and durations."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import Any

from webgym_cli.util.optional import when

_SPACE = re.compile(r"\s*")
# User and password before the host of a URL; a password may contain `@`. Schemes are short: without a limit the time
# would be quadratic in the length of a text like `a.a.a.`.
_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^/?#\s,@]*(?:@[^/?#\s,@]*)*@", re.IGNORECASE)
# Control characters that terminals interpret or HTML forbids; tab and line feed are harmless.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What a shell takes literally, and operators of it: words of their own, with a file, or at a word's end.
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_OPERATOR = re.compile(r";(?=\s+\S)|(?<!\S)(?:\|[|&]?|&&?|(?:\d*|&)>[>&|]?(?!=)\S*|\d*<(?!=|\S*>)\S*)(?!\S)")
# Unicode categories that terminals interpret or can't show.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, with the next after a colon; the name of its class if there is none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 1 + lines[0].endswith(":")])


def split_command(text: str) -> list[str]:
    """Return the words of a command that no shell reads. Raises `ValueError`, also for operators of a shell."""
    words = shlex.split(text)
    if operator := _OPERATOR.search(_QUOTED.sub("_", text)):
        raise ValueError(f"{operator[0]} needs a shell: sh -c '...'")
    return words


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `1,200 steps`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def and_more(count: int) -> str:
    """Return what follows the first of several things that could be named: ` (and 3 more)`; empty if it is alone."""
    return when(count > 1, f" (and {count - 1} more)")


def name_first(names: Sequence[str], limit: int) -> str:
    """Return the first names of a list, and dots for the others."""
    shown = list(names[:limit])
    if len(names) > limit:
        shown.append("...")
    return ", ".join(shown)


def number_repeats(names: Iterable[str]) -> list[str]:
    """Return names of which none is repeated: the second `id` is `id_1`."""
    distinct: list[str] = []
    for name in names:
        numbered = chain([name], (f"{name}_{number}" for number in count(1)))
        distinct.append(next(one for one in numbered if one not in distinct))
    return distinct


def truncate(text: str, limit: int | None) -> str:
    """Truncate a text to `limit` characters; a truncated text ends with an ellipsis."""
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


def format_duration(seconds: float | None) -> str:
    """Return a duration in a suitable unit: `8 ms`, `1.24 s`, `31 s`, `4.1 min`, `2.5 h`; empty for None."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def hide_passwords(value: Any) -> Any:
    """Return a JSON value with user and password removed from all URLs."""
    return map_texts(value, lambda text: _PASSWORD.sub(r"\1", text) if "@" in text else text)


def skip_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the index after a pattern's match at a place; the place itself without one."""
    match = pattern.match(text, at)
    return match.end() if match else at


def remove_between(text: str, start: str, end: str) -> str:
    """Return a text without the parts from each `start` to the next `end` and the space after it, in linear time.

    The regular expression `start.*?end` takes quadratic time on a text of many starts without an end.
    """
    kept, at = [], 0
    while (begin := text.find(start, at)) >= 0 and (close := text.find(end, begin + len(start))) >= 0:
        kept.append(text[at:begin])
        at = skip_match(_SPACE, text, close + len(end))
    return "".join((*kept, text[at:]))


def find_between(text: str, tag: str) -> list[str]:
    """Return what stands between each `<tag>` and the next `</tag>`, in any case of letters, in linear time."""
    contents: list[str] = []
    begin = None
    for match in re.finditer(f"<(/?){tag}>", text, re.IGNORECASE):
        if match[1] and begin is not None:
            contents.append(text[begin : match.start()])
            begin = None
        elif not match[1] and begin is None:
            begin = match.end()
    return contents


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with a function applied to all of its texts except keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}
    return [map_texts(item, change) for item in value] if isinstance(value, list | tuple) else value


def replace_surrogates(text: str) -> str:
    """Return a text with question marks for unpaired surrogates, which can't be encoded as UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def replace_control(text: str) -> str:
    """Return multi-line text without control characters, for a page or a table."""
    # mostly there are none, and a page's embedded images are megabytes
    return text if _CONTROL.search(text) is None else type(text)(_CONTROL.sub("·", text))


def escape_control(text: str) -> str:
    """Return text as one line that can't move the cursor, set colours or change the text direction."""
    return "".join("·" if unicodedata.category(letter) in _HIDDEN else letter for letter in text)
