"""Numbers in English words: `twenty-one`, `minus 5`, `two-thirds`, and `two (2)`."""

from __future__ import annotations

import re

# The words of 0 to 19, and of the tens from 20.
ONES = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_SPELLED = {word: number for number, word in enumerate(ONES)} | {
    f"{tens}{one and '-'}{one}": 10 * ten + unit
    for ten, tens in enumerate(TENS, 2)
    for unit, one in enumerate(["", *ONES[1:10]])
}
# The first letters of a part -> the number of such parts.
_PARTS = {"hal": 2, "thi": 3, "fou": 4, "qua": 4, "fif": 5, "six": 6, "sev": 7, "eig": 8, "nin": 9, "ten": 10}
_WORDS = "|".join(sorted((word.replace("-", "[- ]") for word in _SPELLED), key=len, reverse=True))
_FRACTION = re.compile(
    rf"(minus |negative )?(a|{'|'.join(ONES[1:10])})[- ]"
    r"(half|halves|(?:third|fourth|quarter|fifth|sixth|seventh|eighth|ninth|tenth)s?)",
    re.IGNORECASE,
)
_NUMBER = re.compile(rf"(?:(minus|negative)\s+)?((?:{_WORDS})(?!\s+quarters?\b)|\d+)(?![\w-])", re.IGNORECASE)
_TWICE = re.compile(rf"\b({_WORDS})\s+\((\d+)\)", re.IGNORECASE)


def read_first_words(text: str) -> str:
    """Return a text with digits in place of the number in words that it begins with, or of a fraction that it is."""
    if fraction := _FRACTION.fullmatch(text):
        above, below = _SPELLED.get(fraction[2].lower(), 1), _PARTS[fraction[3][:3].lower()]
        return rf"{'-' * bool(fraction[1])}\frac{{{above}}}{{{below}}}"
    if spelled := _NUMBER.match(text):
        return f"{'-' * bool(spelled[1])}{_to_number(spelled[2])}{text[spelled.end() :]}"
    return text


def join_repeated(text: str) -> str:
    """Return a text with one number in place of each that is written twice: `two (2)`."""
    return _TWICE.sub(lambda match: match[2] if str(_to_number(match[1])) == match[2] else match[0], text)


def _to_number(word: str) -> int | str:
    return _SPELLED.get(word.lower().replace(" ", "-"), word)
