"""Parsing of the number that an answer gives, in plain text or LaTeX, and comparison of answers."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from webgym_cli.scoring.latex import is_equal_latex
from webgym_cli.tools.arithmetic import BadExpressionError, Number, evaluate

# Relative tolerance for numbers that are not exact.
TOLERANCE = 1e-6
_MAX_CHARACTERS = 300
# Maximum number of boxes that are tried, from the end; unclosed ones are skipped.
_MAX_BOXES = 20

_FINAL = re.compile(r"(?:final answer|answer)\s*(?:is|:|=)+\s*(.+?)(?=\s*(?:\.\s|\.$|\n|$))", re.IGNORECASE)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"####\s*(.+)")
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-−+](?=[$€£\d.]))?[$€£]?\s*(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:[eE][+-]?\d+)?(?:\s*/\s*\d[\d,]*(?:\.\d+)?)?\s*%?"
)
_UNITS = re.compile(r"(?<=[\d.)%}])\s*[A-Za-z°][A-Za-z°.²³/ ]*$")
_UNDONE = re.compile(r"\d\s*[-+*×·]\s*(?!10\s*\^)\d")
_LEAD = re.compile(r"^[A-Za-z]\w*\s*=\s*")
_MIXED = re.compile(r"(?<![\w.)])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\w.(])")
_NOISE = re.compile(
    r"\\(?:left|right|displaystyle|quad|qquad|,|;|!|:| )|\{,\}(?=\d{3})|[$€£~]|\\[$%]|\^\s*\{?\\circ\}?"
)
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox|operatorname)\s*\{[^{}]*\}")
_WORDS = re.compile(r"\\(?:text|mathrm|textbf|mbox|operatorname)\s*\{([^{}]*)\}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{\w+\*?\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_GROUP = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
_COMMANDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=\d)\s*\\[dtc]?frac\s*" + _GROUP + r"\s*" + _GROUP), r"+((\1)/(\2))"),
    (re.compile(r"\\[dtc]?frac\s*" + _GROUP + r"\s*" + _GROUP), r"((\1)/(\2))"),
    (re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)"), r"((\1)/(\2))"),
    (re.compile(r"\\sqrt\s*\[(\d+)\]\s*" + _GROUP), r"((\2)^(1/\1))"),
    (re.compile(r"\\sqrt\s*" + _GROUP), r"sqrt(\1)"),
    (re.compile(r"\\sqrt\s*(\d)"), r"sqrt(\1)"),
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\pi(?![A-Za-z])"), "pi"),
    (re.compile(r"\^\s*" + _GROUP), r"^(\1)"),
    (re.compile(r"√\s*\(([^()]*)\)"), r"sqrt(\1)"),
    (re.compile(r"√\s*(\d+(?:\.\d+)?)"), r"sqrt(\1)"),
)
_FACTORS = re.compile(r"(?<=[\d)])\s*(?=sqrt|pi|\()")


def matches_answer(response: str, wanted: str) -> bool:
    """Whether a response gives the wanted answer: a number, LaTeX, or any short text."""
    target = extract_answer(wanted, reference=True) or wanted.strip()
    given = extract_answer(response)
    if given is None:
        given = response if parse_number(target) is None else extract_last_number(response)
    return answers_equal(given, target)


def extract_answer(text: str, *, reference: bool = False) -> str | None:
    """Return the part of a text that is marked as its answer; None without a mark.

    By precedence: the last `\\boxed{...}`, `<answer>` tags, `####`, `answer is` or `answer:`. `reference`: the text is
    a record's answer, which is marked by a box or by `####`, as in GSM8K's files.
    """
    boxed = extract_boxed(text)
    if boxed is not None:
        return boxed
    for pattern in (_HASHES,) if reference else (_TAGGED, _HASHES, _FINAL):
        if matches := pattern.findall(text):
            return str(matches[-1]).strip().strip("*`")
    return None


def extract_last_number(text: str) -> str:
    """Return the last number in a text, or the whole text if it is a number or contains none."""
    if parse_number(text) is not None:
        return text.strip()
    numbers = [match[0] for match in _NUMBER.finditer(text) if re.search(r"\d", match[0])]
    return numbers[-1].strip() if numbers else text.strip()


def extract_boxed(text: str) -> str | None:
    """Return the content of the last closed `\\boxed{...}`, inner brackets included; None without one."""
    start = text.rfind("\\boxed{")
    # A response of thousands of open boxes would take quadratic time.
    for _ in range(_MAX_BOXES):
        if start < 0:
            break
        depth, begin = 0, start + len("\\boxed")
        for place in range(begin, len(text)):
            depth += (text[place] == "{") - (text[place] == "}")
            if depth == 0:
                return text[begin + 1 : place].strip()
        start = text.rfind("\\boxed{", 0, start)
    return None


def parse_number(text: str) -> Number | None:
    """Parse a short text as a number: `1,000`, `$3.50`, `50%`, `1 1/2`, `\\frac{1}{2}`, `72 clips`; else None.

    Percentages are divided by 100. A unit after the number is ignored.
    """
    text = text.strip().strip("*`").rstrip(".").strip()
    if not text or len(text) > _MAX_CHARACTERS:
        return None
    plain = _to_arithmetic(text)
    # With the unit first: "pi" is a number, not a unit.
    for candidate in (plain, _UNITS.sub("", plain)):
        try:
            return evaluate(candidate)
        except BadExpressionError:
            continue
    return None


def answers_equal(given: str, wanted: str) -> bool:
    """Whether two texts give the same number, text (ignoring case, spaces and markup) or expression.

    A percentage equals both its number and its fraction: `50%` is 50 and 0.5. An unevaluated sum or product (`48+24`)
    never equals a number, unless the wanted answer is one, too. Expressions are compared by math-verify.
    """
    ours, theirs = parse_number(given), parse_number(wanted)
    if theirs is not None and _UNDONE.search(given) and not _UNDONE.search(wanted):
        return False
    if ours is None or theirs is None:
        return _normalise_text(given) == _normalise_text(wanted) or (
            _is_expression(given) and _is_expression(wanted) and is_equal_latex(given, wanted)
        )
    if _is_close(ours, theirs):
        return True
    # Only where one of them is a percentage: 0.5 and 50 are not equal.
    one, other = "%" in given, "%" in wanted
    return one != other and _is_close(ours * 100 if one else ours, theirs * 100 if other else theirs)


def _is_close(ours: Number, theirs: Number) -> bool:
    if isinstance(ours, Fraction) and isinstance(theirs, Fraction) and ours == theirs:
        return True
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=TOLERANCE, abs_tol=1e-12)
    except OverflowError:
        return False


def _to_arithmetic(text: str) -> str:
    """Convert LaTeX and informal notation to arithmetic."""
    text = _LEAD.sub("", _TEXT.sub("", _NOISE.sub(_keep_percent, text)))
    text = _MIXED.sub(r"(\1+\2/\3)", text)
    for pattern, written in _COMMANDS:
        text = _replace_all(pattern, written, text)
    return _FACTORS.sub("*", text.replace("{", "(").replace("}", ")")).strip()


def _keep_percent(noise: re.Match[str]) -> str:
    return "%" if noise[0] == "\\%" else ""


def _replace_all(pattern: re.Pattern[str], written: str, text: str) -> str:
    """Replace until nothing changes, because fractions are nested. Terminates: each pass removes a command."""
    while (after := pattern.sub(written, text)) != text:
        text = after
    return text


def _normalise_text(text: str) -> str:
    return re.sub(r"\s+", "", _WORDS.sub(r"\1", _NOISE.sub(_keep_percent, text))).casefold()


def _is_expression(text: str) -> bool:
    """Whether a text may be mathematics. Words are not: math-verify would take them for products of their letters."""
    return 0 < len(text) <= _MAX_CHARACTERS and not _WORD.search(_ENVIRONMENT.sub("", _WORDS.sub(r" \1 ", text)))
