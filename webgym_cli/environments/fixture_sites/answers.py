"""Comparison of answers by their words and numbers, independent of spelling."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from itertools import chain

_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
_IN_DIGITS = {word: str(number) for number, word in enumerate(_WORDS.split())}


def contains_answer(answer: str, expected: str) -> bool:
    """Whether the answer contains the expected words and numbers consecutively.

    Case, Unicode form, punctuation and number format (1,204.50 or 1204.5) are ignored.
    """
    return _contains(_tokens(answer), _tokens(expected))


def find_stray_numbers(answer: str, *allowed: str) -> list[str]:
    """Return the numbers of the answer that occur in no allowed text: listing all candidates is no answer."""
    known = set(chain.from_iterable(map(_tokens, allowed)))
    numbers = [_normal(token) for token in _TOKEN.findall(answer) if token[0].isdigit()]
    return [number for number in numbers if number not in known]


def is_same_text(one: str, other: str) -> bool:
    """Whether two texts have the same words and numbers in the same order."""
    return _tokens(one) == _tokens(other)


def _contains(tokens: list[str], wanted: list[str]) -> bool:
    width = len(wanted)
    return width > 0 and any(tokens[at : at + width] == wanted for at in range(len(tokens) - width + 1))


def _tokens(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return [_normal(token) for token in _TOKEN.findall(plain)]


def _normal(token: str) -> str:
    """Return a number in normal form, small numbers in words as digits; other words unchanged."""
    if not token[0].isdigit():
        return _IN_DIGITS.get(token, token)
    if ":" in token:
        return ":".join(part.lstrip("0") or "0" if at == 0 else part for at, part in enumerate(token.split(":")))
    if _GROUPED.fullmatch(token):
        token = token.replace(",", "")
    elif re.fullmatch(r"\d+,\d+", token):
        token = token.replace(",", ".")
    if not re.fullmatch(r"\d+(?:\.\d+)?", token) or not token.isascii():
        return token
    return format(Decimal(token).normalize(), "f")
