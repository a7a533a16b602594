"""Equality of two answers: of numbers exactly, of expressions by `math-verify`, of all others as texts."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from webgym_cli.scoring.clock import compare_times
from webgym_cli.scoring.latex import is_equal_latex
from webgym_cli.scoring.number_words import read_first_words
from webgym_cli.scoring.units import NO_UNIT, Unit, split_unit, units_agree

_MAX_CHARACTERS = 300

_SYMBOLS = str.maketrans(
    {
        **{"−": "-", "–": "-", "－": "-", "﹣": "-", "÷": "/", "\xa0": " ", "\u2009": " ", "\u202f": " ", "％": "%"},
        **{"½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}"},
        **{"×": r"\times ", "·": r"\cdot ", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne "},
        **dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u2060\ufeff", ""),
        **{"’": "'", "µ": "μ", "∅": r"\emptyset ", "∪": r"\cup ", "∈": r"\in ", "±": r"\pm ", "θ": r"\theta "},
    }
)
# Signs around a text that are no part of it: Markdown, quotes, and dollars or brackets around LaTeX.
_AROUND = re.compile(
    r"^(?:[\s*`\"“”„«•=⇒→∴≈]|=>|\\(?:approx|sim)(?![a-z]))+|[\s*`\"“”».]+$|^\\[(\[]|\\[)\]]$|^\$+(?=[^$]+\$+$)|(?<=[^$\\\s])\$+$(?<=[^\d.]\$)"
)
# An amount in brackets is negative, as in accounting: `($50)`.
_ACCOUNTING = re.compile(r"^\((\\?[$€£¥₹])([\d.,]+)\)$|^(\\?[$€£¥₹])\(([\d.,]+)\)$")
# A number and another that it may be rounded to.
_ROUNDED = re.compile(r"(-?\d{1,9}\.\d{1,9})\s*(?:≈|\\approx)\s*(-?\d{1,9}(?:\.\d{1,9})?)")
_INLINE = re.compile(r"\$+\s*([^$]+?)\s*\$+|(?<!\\)\\\((.+?)\\\)|(?<!\\)\\\[(.+?)\\\]", re.DOTALL)
_RAISED = re.compile("[⁺⁻]?[⁰¹²³⁴-⁹]+")
_LOWERED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_NOISE = re.compile(r"\\(?:left|right|displaystyle|limits|big|Big|bf|rm)(?![A-Za-z])")
_SPACES = re.compile(r"\\(?:quad|qquad)(?![A-Za-z])|(?<!\\)\\[,;:! ]|~|\s+")
_THOUSANDS = re.compile(r"(?<![\d.,^_{])\d{1,3}(?:(?:,\\!\s?|,|\{,\}|\\[,!: ]| )\d{3})+(?![\d,])")
# As many languages write them: `1.234,50`, `1.234.567`; `1.234` alone is a decimal number.
_POINTS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:(?:\.\d{3})+,\d{1,2}|(?:\.\d{3}){2,})(?![\w.,])")
_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf)|mbox|underline|operatorname)\s*\{([^{}]*)\}")
# Plain notation, and what it is in LaTeX.
_PLAIN = (
    (
        re.compile(r"√\s*\(([^()]*)\)|√\s*(\d+(?:\.\d+)?|[A-Za-z])|(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)"),
        r"\\sqrt{\1\2\3}",
    ),
    # An angle in degrees, which is a number of radians in LaTeX
    (
        re.compile(
            r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\s*\^\s*\{?\d\}?)?)\s*[({]?\s*"
            r"(\d+(?:\.\d+)?|[A-Za-z]|\\[a-z]+)\s*(?:\^\s*\{?\\circ\}?|°)\s*[)}]?"
        ),
        r"\1(\\frac{\2\\pi}{180})",
    ),
    (re.compile(r"(?<![\\A-Za-z])(pi|(?:sin|cos|tan|log|ln)(?! [a-z]{3}))(?![A-Za-z])"), r"\\\1 "),
    (re.compile(r"(?<![\\A-Za-z])infinity(?![A-Za-z])"), r"\\infty "),
    # 1.5e3, which is 1.5 times Euler's number times 3 in LaTeX
    (re.compile(r"(?<![A-Za-z\\])(\d|\d\.)[eE]([-+]?\d{1,3})(?![\w.])"), r"\1\\cdot 10^{\2}"),
    (re.compile(r"(?<=[\w)])\*\*(?=[\w(-])"), "^"),
    (re.compile(r"\^\s*(-?\d{2,}|-\d)"), r"^{\1}"),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset "),
    # A decimal comma
    (re.compile(r"(?<![\d,}])(\d+)\{,\}(\d{1,2}|\d{4,})(?![\d{,])"), r"\1.\2"),
    (re.compile(r"(?<![\w.])(\d+) and (?:a|one) half\b"), r"\1.5"),
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"(?<![\w.)}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\w.(])"), r"\1\\frac{\2}{\3}"),
)
_REPEATING = re.compile(r"(\d{0,20})\.(\d{0,20})\\(?:overline|bar|dot)\s*\{(\d{1,20})\}")
_POWER = re.compile(r"\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*\{?\s*([-+]?\d{1,3})\s*\}?$")
# A longer exponent takes minutes and gigabytes.
_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,3})?")
_FRACTION = re.compile(
    r"(?:(\d+)\s*(?=\\))?(?:\\[dtc]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?))"
)
_SIGN = re.compile(r"^[-+]\s*")
_CHOICE = re.compile(r"(?:(?:option|choice)\s+)?(?:\(([A-J])\)[.:]?|([A-J])(?:[.):]|$))(?=\s|$)", re.IGNORECASE)
# The letters of a model that repeats itself, which would be compared one by one.
_REPEATED = re.compile(r"(?:\W*[A-J][.):]){20}", re.IGNORECASE)
_CHOICES = re.compile(r"[A-J](?:, [A-J])+")
# What is no text of a choice: it denies it, `B. No, C.` takes it back, and `A) 1 B) 2 C) 3` lists all.
_NO_CHOICE = re.compile(
    r"\([a-j]\)|\b(?:or|and)\b|^(?:is|was)(?:n't| not| wrong| incorrect| false)\b"
    r"|^\w+\s(?-i:B[.)]\s\w+\sC[.)])\s"
    r"|^(?:no|wait|actually|sorry|oops|rather|correction|i mean)\b"
    r"(?:\W+(?:it(?:['’]s| is) )?([a-j])\n(?!\1)|(?<!no)\n)",
    re.IGNORECASE,
)
# A range, a date, a score or a phone number, which is no calculation.
_SPAN = re.compile(r"\d+(?:\.\d+)?(?:\s*-\s*\d+(?:\.\d+)?)+|\d+(?:\s*/\s*\d+){2,}")
_RATIO = re.compile(r"\d+\s*:\s*(?!1$)\d+")
_UNDONE = re.compile(r"\d\s*(?:[-+*]|\\times|\\cdot)\s*(?!10\s*\^)\d")
# The last `and` of a list with commas.
_LAST_AND = re.compile(r"^([^,]+,.*?),? and (?=[^,]+$)")
_FINE = re.compile(r"\.\d{6}")
_CONJUNCTION = re.compile(r"\s*,?\s*(?:\\text\s*\{\s*(?:and|or)\s*\}|(?<=\s)(?:and|or)(?=\s))\s*")
# The name of a value: `Total = `.
_NAME = re.compile(
    r"^(?!(?:not|no|never)\b|[^=:]*\b(?:half|twice|double|triple)\b)"
    r"(?:\\text\{|\\angle\s*)?[A-Za-z][A-Za-z ]{2,}\}?\s*[=:]\s*"
)
_WORD = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{3,}|no|[Ss]o|As|By|If|It|We)(?![A-Za-z])|^[A-Z]{2,}$")
# What is no product of its letters and numbers: `2h 30m`, `H2O`, `--5`, `0x1F`, `a == b`, `2 to 3`.
_NO_PRODUCT = re.compile(r"(?<![\\A-Za-z])[A-Za-z]\s*\d|^--|(?<!\w)0[xb]\d|==|\d\s+(?:to|of|by|in|at|on)\s+\d")
_RELATION = re.compile(r"=|([<>]|\\(?:le|ge|leq|geq|lt|gt)(?![A-Za-z]))")
_JOIN = re.compile(r"\b(?:and|or)\b")
# Rows of a table, whose bars are no absolute values.
_TABLE = re.compile(r"\|.*\n.*\|")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{\w+\*?\}")
_MATHEMATICAL = re.compile(r"[\d=+^_\\<>]")


@dataclass(frozen=True, slots=True)
class Answer:
    """A parsed answer."""

    text: str
    """Without markup and superfluous spaces; words in lower case."""
    expression: str
    """In LaTeX, without the unit."""
    value: Fraction | None
    """None for what is no plain number."""
    unit: Unit

    @property
    def is_percentage(self) -> bool:
        """Whether it is a percentage."""
        return "%" in self.unit[0]

    def to_fraction(self) -> Answer:
        """Return a percentage as a number: 0.5 of 50 %."""
        value = self.value and self.value / 100
        return Answer(self.text, rf"\frac{{{self.expression}}}{{100}}", value, NO_UNIT)


def answers_equal(given: str, wanted: str) -> bool:
    """Whether two texts give the same number, text (ignoring case, spaces and markup) or expression.

    A percentage equals both its number and its fraction: `50%` is 50 and 0.5, but `0.25%` is not 0.25. An unevaluated
    sum or product (`48+24`) never equals a number, unless the wanted answer is one, too. A unit may be missing, but not
    differ.
    """
    given, wanted = _strip_markup(given), _strip_markup(wanted)
    if (it := _ROUNDED.fullmatch(given)) and Decimal(it[1]).quantize(Decimal(it[2]), ROUND_HALF_UP) == Decimal(it[2]):
        return any(answers_equal(part, wanted) for part in it.groups())
    ours, theirs = parse_answer(given, named="=" in wanted), parse_answer(wanted, named="=" in given)
    if not ours.text or not theirs.text:
        return False
    if ours.text == theirs.text or _compare_choices(given, wanted):
        return True
    if (same := compare_times(ours.text, theirs.text)) is not None:
        return same
    if not units_agree(ours.unit, theirs.unit):
        return False
    # Only where one of them is a percentage: 0.5 and 50 are not equal.
    if ours.is_percentage == theirs.is_percentage:
        return _is_equal(ours, theirs)
    # 0.25% is not 0.25, which is a quarter.
    is_share = ours.is_percentage and theirs.value is not None and abs(theirs.value) < 1
    if not is_share and _is_equal(ours, theirs):
        return True
    return _is_equal(ours.to_fraction(), theirs) if ours.is_percentage else _is_equal(ours, theirs.to_fraction())


def parse_answer(text: str, *, named: bool = True) -> Answer:
    """Parse an answer without markup. `named`: the name of a value (`Total = 5`) belongs to it."""
    if len(text) > _MAX_CHARACTERS or _TABLE.search(text):
        return Answer(" ".join(text.split()).casefold(), "", None, NO_UNIT)
    if inner := _WRAPPED.fullmatch(text):
        text = inner[1]
    text = _to_latex(read_first_words(text))
    plain = _LAST_AND.sub(r"\1, ", " ".join(_WRAPPED.sub(r" \1 ", unicodedata.normalize("NFC", text)).split()))
    # Not between letters and digits: `1 2` is not 12.
    plain = re.sub(r"(?<![^\W_])\s+|\s+(?![^\W_])", "", plain).rstrip(".")
    if not _MATHEMATICAL.search(plain):
        plain = plain.casefold()
    if not named:
        text = _NAME.sub("", text)
    expression, unit = split_unit(_CONJUNCTION.sub(", ", text))
    value, factor = parse_number(expression), unit[1]
    if factor != 1:
        expression = rf"{factor} \cdot ({expression})"
    return Answer(plain, expression, value and value * factor, unit)


def parse_number(text: str) -> Fraction | None:
    """Parse a number without a unit (`-1000`, `3.50`, `1.5e3`, `1/2`, `1\\frac{1}{2}`); None for anything else."""
    text = _POWER.sub(r"e\1", text.strip())
    sign, digits = -1 if text.startswith("-") else 1, _SIGN.sub("", text)
    if _NUMBER.fullmatch(digits):
        return sign * Fraction(digits)
    match = _FRACTION.fullmatch(digits.strip())
    if match is None:
        return None
    above, below = Fraction(match[2] or match[4]), Fraction(match[3] or match[5])
    return sign * (int(match[1] or 0) + above / below) if below else None


def _is_equal(ours: Answer, theirs: Answer) -> bool:
    if ours.value is not None and theirs.value is not None:
        if ours.value == theirs.value:
            return True
        # Only a decimal number with many digits may stand for a fraction: 0.333333.
        if not _FINE.search(ours.expression + theirs.expression):
            return False
    for one, other in ((ours, theirs), (theirs, ours)):  # 6:2 may be a fraction, but is not 3
        if other.value is not None and other.value.denominator == 1 and _RATIO.fullmatch(one.expression):
            return False
    if _SPAN.fullmatch(ours.expression) or _SPAN.fullmatch(theirs.expression):
        return False
    # math-verify takes `5, 5` for the set of 5.
    if theirs.value is not None and re.fullmatch(r"[^()\[\]{}=]*,[^()\[\]{}=]*", ours.expression):
        return False
    # 6*7=42 and 42=6*7 are evaluated.
    if theirs.value is not None and all(map(_UNDONE.search, ours.expression.split("="))):
        return False
    both = (ours.expression, theirs.expression)
    return all(map(_is_expression, both)) and _have_same_relations(ours, theirs) and is_equal_latex(*both)


def _have_same_relations(ours: Answer, theirs: Answer) -> bool:
    """Whether two answers may be equal: no equation with an inequality, no `and` with `or` between these or choices.

    math-verify takes both for lists.
    """
    kinds, others = ({bool(match[1]) for match in _RELATION.finditer(it.expression)} for it in (ours, theirs))
    joins, other_joins = (set(_JOIN.findall(it.text)) for it in (ours, theirs))
    is_joined = True in kinds & others or _CHOICES.fullmatch(ours.expression) is not None
    if is_joined and joins and other_joins and joins != other_joins:
        return False
    return not kinds or not others or kinds == others


def _is_expression(text: str) -> bool:
    """Whether a text may be mathematics. Words are not: math-verify would take them for products of their letters."""
    if not 0 < len(text) <= _MAX_CHARACTERS or _NO_PRODUCT.search(text):
        return False
    return not _WORD.search(_ENVIRONMENT.sub("", _WRAPPED.sub(r" \1 ", text)))


def _compare_choices(given: str, wanted: str) -> bool:
    """Whether both name the same choice, by letter and text or one of them: `(B)` and `B. Paris`, `B. 7` and `7`."""
    (one, rest), (other, other_rest) = map(_split_choice, (given, wanted))
    if bool(one) is not bool(other):
        is_repeated = any(map(_REPEATED.match, (rest, other_rest)))
        return bool(rest and other_rest) and not is_repeated and answers_equal(rest, other_rest)
    if one != other or not one:
        return False
    if rest and other_rest:
        return rest.casefold() == other_rest.casefold()
    return not _NO_CHOICE.search(f"{rest or other_rest}\n{one}")


def _split_choice(text: str) -> tuple[str, str]:
    """Return the letter of a choice, empty without one, and its text."""
    text = _WRAPPED.sub(r"\1 ", text).replace("\\ ", " ").strip()
    letter = _CHOICE.match(text)
    return ((letter[1] or letter[2]).upper(), text[letter.end() :].strip(" .")) if letter else ("", text)


def _strip_markup(text: str) -> str:
    """Return a text without signs around it that are no part of it."""
    text = text.strip()
    if len(text) > 2 * _MAX_CHARACTERS:
        return text
    while (inner := _AROUND.sub("", text).strip()) != text:
        text = inner
    return _ACCOUNTING.sub(r"-\1\2\3\4", text)


def _to_latex(text: str) -> str:
    """Convert plain notation to LaTeX, without spacing commands and thousands separators."""
    text = _NOISE.sub("", _INLINE.sub(lambda match: match[1] or match[2] or match[3], text)).translate(_SYMBOLS)
    text = _RAISED.sub(lambda match: f"^{{{match[0].translate(_LOWERED)}}}", text)
    # Within a list's brackets a comma separates: (1,200) is a point.
    if not text.lstrip().startswith(("(", "[", "\\{")):
        text = _THOUSANDS.sub(lambda match: re.sub(r"\D", "", match[0]), text)
        text = _POINTS.sub(lambda match: match[0].replace(".", "").replace(",", "."), text)
    text = _REPEATING.sub(_repeating_fraction, _SPACES.sub(" ", text))
    for pattern, latex in _PLAIN:
        text = pattern.sub(latex, text)
    return text.strip()


def _repeating_fraction(match: re.Match[str]) -> str:
    whole, start, period = match.groups()
    numerator = int(f"{whole}{start}{period}") - int(f"0{whole}{start}")
    return rf"\frac{{{numerator}}}{{{'9' * len(period)}{'0' * len(start)}}}"
