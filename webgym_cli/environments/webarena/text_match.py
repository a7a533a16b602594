"""WebArena's text matching rules for answers and page contents."""

from __future__ import annotations

import asyncio
import operator
import re
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from webgym_cli.errors import UsageError
from webgym_cli.records.webarena import AND, OR, Evaluation, Expected
from webgym_cli.util.optional import when

# Answer that declares a task infeasible.
UNACHIEVABLE = "N/A"

# A word including its joining characters and the sign of a number, or one other character.
_TOKEN = re.compile(r"(?:(?<![\w)\].])[-+−]?(?=\.?\d)\.?)?\w+(?:(?:[-./]|[,:–](?=\d))\w+)*|[^\w\s]")
_NUMERAL = re.compile(r"[-+−]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)", re.ASCII)
# A number that is no part of a date, a time, a version or a word.
_FREE = re.compile(r"(?<![\w.,/:+−-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w/:-]|[.,]\d)", re.ASCII)
# The end of a number with three or more decimals, such as a coordinate, which may be followed by more digits.
_FINE = re.compile(r"\d\.\d{3,}\Z", re.ASCII)
_FRACTION = re.compile(r"\d\.\d+\Z", re.ASCII)
_COMPARISON = re.compile(r"\s*(<=|>=|==|<|>)\s*(-?\d+(?:\.\d+)?)\s*", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,3}(?:,\d{3})+|-?\d{1,300}", re.ASCII)


# Whether the answer means the reference, or states it as the reason for infeasibility.
FuzzyKind = Literal["same", "unachievable"]
# Called with kind, the agent's instruction, reference and answer; returns whether everything is right. Raises
# `BoundaryError` without a verdict, which is no 0.
FuzzyJudgeFn = Callable[[FuzzyKind, str, str, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class FuzzyContext:
    """What is needed to query a judge about an episode."""

    intent: str
    string_note: str
    judge: FuzzyJudgeFn | None

    async def ask(self, kind: FuzzyKind, reference: str, answer: str) -> bool:
        """Return the judge's verdict. Raises `UsageError` without a judge."""
        if self.judge is None:
            raise UsageError("a fuzzy_match needs a judge", hint="configure a judge, or leave such tasks out")
        return await self.judge(kind, self.intent, reference, answer)


def needs_judge(evaluation: Evaluation) -> bool:
    """Whether an evaluation may need a judge."""
    answers = [evaluation.reference_answers] if evaluation.reference_answers else []
    contents = [target.required_contents for target in evaluation.program_html]
    return any(expected.fuzzy_match for expected in answers + contents)


async def matches_expected(text: str, expected: Expected, asker: FuzzyContext) -> bool:
    """Whether a text meets all requirements. The judge is queried last, and only if the other rules hold."""
    # A page may be megabytes long: other episodes must not wait for its words.
    if not await asyncio.to_thread(_meets_rules, text, expected):
        return False
    return expected.fuzzy_match is None or await _fuzzy(text, expected.fuzzy_match, asker)


def _meets_rules(text: str, expected: Expected) -> bool:
    """Whether a text meets all requirements but those of the judge."""
    if expected.exact_match is not None and not matches_exactly(text, expected.exact_match):
        return False
    if not all(contains_text(text, wanted) for wanted in expected.must_include or ()):
        return False
    if any(contains_text(text, unwanted) for unwanted in expected.must_exclude or ()):
        return False
    if expected.one_of and not any(normalise(wanted) in normalise(text) for wanted in expected.one_of):
        return False
    return all(meets_comparison(text, comparison) for comparison in expected.required_values or ())


def normalise(text: str) -> str:
    """Return a text in lower case and NFC, without surrounding space and quotes."""
    text = unicodedata.normalize("NFC", text).strip()
    while len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return text.lower()


def matches_exactly(text: str, wanted: str) -> bool:
    """Whether two normalised texts are equal."""
    return normalise(text) == normalise(wanted)


def contains_text(text: str, wanted: str) -> bool:
    """Whether a text contains the expected one, one of its alternatives, or all texts of an alternative.

    A single expected word must be a whole word, so that 0 is not in 100; numbers are compared by value: 182.4 is in
    182.40, 189 in 000189. Longer texts must be substrings that don't split a number: `suite 10` is not in `suite 100`.
    """
    content, words = normalise(text), set[str]()

    def contains(part: str) -> bool:
        if not _TOKEN.fullmatch(part):
            return _has_part(content, part)
        # Only a number may be written otherwise; the words of a page of megabytes take seconds.
        if part not in content and not _NUMERAL.fullmatch(part):
            return False
        words.update(words or _words(content))
        return _has_word(words, part)

    return any(all(contains(normalise(part)) for part in alternative.split(AND)) for alternative in wanted.split(OR))


def meets_comparison(text: str, comparison: str) -> bool:
    """Whether a text is an integer that meets a comparison like `>= 300`, or one of several alternatives.

    Raises `ValueError` for an invalid comparison.
    """
    wanted = parse_comparisons(comparison)
    plain = normalise(text)
    if not _NUMBER.fullmatch(plain):
        return False
    number = Decimal(plain.replace(",", ""))
    return any(_OPERATORS[sign](number, limit) for sign, limit in wanted)


def parse_comparisons(text: str) -> list[tuple[str, Decimal]]:
    """Return operators and numbers of the alternatives. Raises `ValueError`."""
    comparisons = [(_COMPARISON.fullmatch(part), part.strip()) for part in text.split(OR)]
    if bad := [part for match, part in comparisons if match is None]:
        raise ValueError(f"{bad[0]!r} is no comparison like '>= 300'")
    return [(match[1], Decimal(match[2])) for match, _ in comparisons if match]


_OPERATORS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}


async def _fuzzy(text: str, wanted: tuple[str, ...], asker: FuzzyContext) -> bool:
    if wanted != (UNACHIEVABLE,):
        return await asker.ask("same", ", ".join(wanted), text)
    if matches_exactly(text, UNACHIEVABLE):
        return True
    return bool(asker.string_note.strip()) and await asker.ask("unachievable", asker.string_note, text)


def _words(text: str) -> set[str]:
    """Return the words of a text, the parts of words joined by slashes, and numbers in normal form."""
    # One match at a time: within a single call for a whole page no other thread runs.
    whole = {match[0] for match in _TOKEN.finditer(text)}
    parts = {part for word in whole if "/" in word for part in word.split("/")}
    # The day of a date is not written as a number: 5 is not in 05/06/2023.
    return whole | parts | {plain_number(word) for word in whole | {part for part in parts if part[:1] != "0"}}


def _has_word(words: set[str], wanted: str) -> bool:
    if wanted in words or plain_number(wanted) in words:
        return True
    return bool(_FINE.search(wanted)) and any(_NUMERAL.fullmatch(word) and word.startswith(wanted) for word in words)


def _has_part(content: str, wanted: str) -> bool:
    if _occurs(content, wanted):
        return True
    plain = _to_plain(wanted)
    if plain is None or not all(piece in content for piece in _FREE.split(wanted)):
        return False
    return _occurs(_to_plain(content) or content, plain)


def _to_plain(text: str) -> str | None:
    """Return a text with its numbers in normal form; None if it contains none."""
    plain, numbers = _FREE.subn(lambda match: plain_number(match[0]), text)
    return plain if numbers else None


def _occurs(content: str, wanted: str) -> bool:
    if wanted not in content:  # by far the most frequent case, on pages of megabytes
        return False
    before = when(wanted[:1].isdecimal(), r"(?<!\d)(?<!\d[,:/–-])(?<!\.)")
    before += when(wanted[:1].isdecimal() or wanted[:1] in "$€£", r"(?<!(?<![\w)\]])[-−])")
    return re.search(f"{before}{re.escape(wanted)}{_end(wanted)}", content) is not None


def _end(wanted: str) -> str:
    """Return the pattern of what may follow an expected substring: not the rest of its last number."""
    if not wanted[-1:].isdecimal() or _FINE.search(wanted):
        return ""
    return r"0*(?!\d)" if _FRACTION.search(wanted) else r"(?!\d|,\d{3}|[.:]\d)"


def plain_number(word: str) -> str:
    """Return a number without plus, thousands separators and superfluous zeros; other words unchanged."""
    if not _NUMERAL.fullmatch(word):
        return word
    whole, _, decimals = word.lstrip("-+−").replace(",", "").partition(".")
    digits = f"{whole.lstrip('0') or '0'}.{decimals}".rstrip("0").rstrip(".")
    return digits if word[0] not in "-−" or digits == "0" else f"-{digits}"
