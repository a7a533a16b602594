"""What a text must be like to score: WebArena's rules for answers and for what pages hold."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from webgym_cli.errors import UsageError
from webgym_cli.records.webarena import AND, OR, Evaluation, Expected

# The answer that a task can't be done.
UNACHIEVABLE = "N/A"

# A word, with what joins its parts and the minus of a number, or one other character.
_TOKEN = re.compile(r"(?:(?<![\w)\]])-(?=\d))?\w+(?:(?:[-./]|[,:](?=\d))\w+)*|[^\w\s]")
_NUMERAL = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", re.ASCII)
# The end of a number with three decimals or more, such as a coordinate: it is there where more of them follow.
_FINE = re.compile(r"\d\.\d{3,}\Z", re.ASCII)
_FRACTION = re.compile(r"\d\.\d+\Z", re.ASCII)
_COMPARISON = re.compile(r"\s*(<=|>=|==|<|>)\s*(-?\d+(?:\.\d+)?)\s*", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,3}(?:,\d{3})+|-?\d{1,300}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FuzzyQuestion:
    """What a judge is asked."""

    kind: Literal["same", "unachievable"]
    """Whether the answer means the reference; or whether it gives the reference as the reason that nothing is done."""
    intent: str
    """What the agent was asked."""
    reference: str
    answer: str


# Answers yes only where all of it is right. Raises `BoundaryError` where it can't tell: that is no 0.
FuzzyJudgeFn = Callable[[FuzzyQuestion], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class FuzzyContext:
    """What is needed to ask a judge about an episode."""

    intent: str
    string_note: str
    judge: FuzzyJudgeFn | None

    async def ask(self, kind: Literal["same", "unachievable"], reference: str, answer: str) -> bool:
        """Return what the judge says. Raises `UsageError` without a judge."""
        if self.judge is None:
            raise UsageError("a fuzzy_match needs a judge", hint="configure a judge, or leave such tasks out")
        return await self.judge(FuzzyQuestion(kind, self.intent, reference, answer))


def needs_judge(evaluation: Evaluation) -> bool:
    """Tell whether a judge may be asked."""
    answers = [evaluation.reference_answers] if evaluation.reference_answers else []
    contents = [target.required_contents for target in evaluation.program_html]
    return any(expected.fuzzy_match for expected in answers + contents)


async def matches_expected(text: str, expected: Expected, asker: FuzzyContext) -> bool:
    """Tell whether a text is as it must be. A judge is asked last, and only where the other rules hold."""
    if expected.exact_match is not None and not matches_exactly(text, expected.exact_match):
        return False
    if not all(contains_text(text, wanted) for wanted in expected.must_include or ()):
        return False
    if any(contains_text(text, unwanted) for unwanted in expected.must_exclude or ()):
        return False
    if expected.one_of and not any(normalise(wanted) in normalise(text) for wanted in expected.one_of):
        return False
    if not all(meets_comparison(text, comparison) for comparison in expected.required_values or ()):
        return False
    return expected.fuzzy_match is None or await _fuzzy(text, expected.fuzzy_match, asker)


def normalise(text: str) -> str:
    """Return a text in lower case, without space around it and without one pair of quotes."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return text.lower()


def matches_exactly(text: str, wanted: str) -> bool:
    """Tell whether two texts are equal once they are cleaned."""
    return normalise(text) == normalise(wanted)


def contains_text(text: str, wanted: str) -> bool:
    """Tell whether a text contains the wanted one, or one of its alternatives, or all texts of an alternative.

    A wanted single word has to be a word of the text, so that 0 is not in 100, and a number the same number: 182.4 is
    in 182.40. Anything longer has to be a part of it that cuts no number: `suite 10` is not in `suite 100`.
    """
    content = normalise(text)
    words: set[str] | None = None
    for alternative in wanted.split(OR):
        parts = [normalise(part) for part in alternative.split(AND)]
        if words is None and any(_is_word(part) for part in parts):
            words = _words(content)
        if all(_has_word(words or set(), part) if _is_word(part) else _has_part(content, part) for part in parts):
            return True
    return False


def meets_comparison(text: str, comparison: str) -> bool:
    """Tell whether a text is a whole number that meets a comparison like `>= 300`, or one of its alternatives.

    Raises `ValueError` for what is no comparison.
    """
    wanted = parse_comparisons(comparison)
    plain = normalise(text)
    if not _NUMBER.fullmatch(plain):
        return False
    number = Decimal(plain.replace(",", ""))
    return any(_OPERATORS[operator](number, limit) for operator, limit in wanted)


def parse_comparisons(text: str) -> list[tuple[str, Decimal]]:
    """Return the operators and numbers of alternatives. Raises `ValueError`."""
    comparisons = [(_COMPARISON.fullmatch(part), part.strip()) for part in text.split(OR)]
    if bad := [part for match, part in comparisons if match is None]:
        raise ValueError(f"{bad[0]!r} is no comparison like '>= 300'")
    return [(match[1], Decimal(match[2])) for match, _ in comparisons if match]


_OPERATORS: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "<=": lambda number, limit: number <= limit,
    ">=": lambda number, limit: number >= limit,
    "==": lambda number, limit: number == limit,
    "<": lambda number, limit: number < limit,
    ">": lambda number, limit: number > limit,
}


async def _fuzzy(text: str, wanted: tuple[str, ...], asker: FuzzyContext) -> bool:
    if wanted != (UNACHIEVABLE,):
        return await asker.ask("same", ", ".join(wanted), text)
    if matches_exactly(text, UNACHIEVABLE):
        return True
    return bool(asker.string_note.strip()) and await asker.ask("unachievable", asker.string_note, text)


def _is_word(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def _words(text: str) -> set[str]:
    """Return the words of a text and the parts of those that a slash joins, numbers in their plain form, too."""
    whole = set(_TOKEN.findall(text))
    words = whole | {part for word in whole if "/" in word for part in word.split("/")}
    return words | {_plain(word) for word in words}


def _has_word(words: set[str], wanted: str) -> bool:
    if _plain(wanted) in words:
        return True
    return bool(_FINE.search(wanted)) and any(_NUMERAL.fullmatch(word) and word.startswith(wanted) for word in words)


def _has_part(content: str, wanted: str) -> bool:
    if wanted not in content:  # by far the most frequent case, on pages of megabytes
        return False
    before = r"(?<!\d)(?<!\d[.,])" if wanted[:1].isdecimal() else ""
    return re.search(f"{before}{re.escape(wanted)}{_end(wanted)}", content) is not None


def _end(wanted: str) -> str:
    """Return the pattern of what may follow a text that is to be a part: not the rest of its last number."""
    if not wanted[-1:].isdecimal() or _FINE.search(wanted):
        return ""
    return r"0*(?!\d)" if _FRACTION.search(wanted) else r"(?!\d|,\d{3})"


def _plain(word: str) -> str:
    """Return a number without separators of thousands and zeros at its end; any other word as it is."""
    if not _NUMERAL.fullmatch(word):
        return word
    whole, point, decimals = word.replace(",", "").partition(".")
    return f"{whole}{point}{decimals}".rstrip("0").rstrip(".") if point else whole
