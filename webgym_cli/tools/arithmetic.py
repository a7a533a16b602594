"""Evaluator of arithmetic expressions: exact where possible, with bounded work. Nothing is evaluated as Python.

    12*50/60   2^10   (1+2)/3   50%   12 % 5   1,000+5   sqrt(2)   5!   max(1, 2)   pi/4   1.5e3

Numbers are exact fractions until a function without an exact value (`sin`, most roots) makes them floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

Number = Fraction | float

MAX_CHARACTERS = 1000
# Maximum nesting depth of brackets, signs and powers.
MAX_DEPTH = 60
# Maximum size of a numerator or denominator: some 1200 digits.
MAX_BITS = 4096
MAX_FACTORIAL = 400

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-zπ]\w*)|(?P<sign>\*\*|//|[-+*/%^!(),]))"
)
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "$": None})
_CONSTANTS = {"pi": math.pi, "π": math.pi, "e": math.e}


class BadExpressionError(ValueError):
    """An expression can't be evaluated. The message is for its author, the policy."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`number`, `name`, `sign` or `end`."""
    text: str
    start: int
    end: int


def evaluate(expression: str) -> Number:
    """Evaluate an expression, within a few milliseconds. Raises `BadExpressionError`."""
    if len(expression) > MAX_CHARACTERS:
        raise BadExpressionError(f"the expression is longer than {MAX_CHARACTERS} characters")
    try:
        return _Parser(_tokens(expression.translate(_SIGNS))).whole()
    except ZeroDivisionError:
        raise BadExpressionError("division by zero") from None
    except OverflowError:
        raise BadExpressionError("the result is too large") from None


def format_number(value: Number) -> str:
    """Format a number: as an integer, else as a short exact decimal, else with ten significant digits."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.10g}"
    if value.denominator == 1:
        return str(value.numerator)
    short = f"{float(value):.15g}"
    return short if "e" not in short and Fraction(short) == value else f"{float(value):.10g}"


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadExpressionError(f"{text[position:].strip()[0]!r} is not understood")
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind], match.start(kind), match.end()))
        position = match.end()
    return [*tokens, _Token("end", "", position, position)]


class _Parser:
    """Recursive descent parser: sums, products, signs, powers (right-associative), postfix `!` and `%`, operands."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._calls = 0
        """Number of open calls, within which a comma separates arguments."""

    def whole(self) -> Number:
        """Return the value of the whole expression."""
        value = self._sum()
        if self._next.kind != "end":
            raise BadExpressionError(f"{self._next.text!r} is not expected there")
        return value

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _takes(self, *signs: str) -> str:
        """Consume and return the next sign if it is one of these; else return an empty string."""
        token = self._next
        if token.kind == "sign" and token.text in signs:
            self._at += 1
            return token.text
        return ""

    def _sum(self) -> Number:
        self._deeper()
        value = self._product()
        while sign := self._takes("+", "-"):
            other = self._product()
            value = _check_size(value + other if sign == "+" else value - other)
        self._depth -= 1
        return value

    def _product(self) -> Number:
        value = self._parse_signed()
        while sign := self._takes("*", "/", "//", "%"):
            other = self._parse_signed()
            value = _check_size(_PRODUCTS[sign](value, other))
        return value

    def _parse_signed(self) -> Number:
        self._deeper()
        sign = self._takes("+", "-")
        value = self._parse_signed() if sign else self._power()
        self._depth -= 1
        return -value if sign == "-" else value

    def _power(self) -> Number:
        base = self._postfix()
        return power(base, self._parse_signed()) if self._takes("^", "**") else base

    def _postfix(self) -> Number:
        value = self._operand()
        while True:
            if self._takes("!"):
                value = _factorial(value)
            elif self._next.text == "%" and not self._begins_operand(self._tokens[self._at + 1]):
                self._at += 1
                value = _check_size(value / 100)
            else:
                return value

    @staticmethod
    def _begins_operand(token: _Token) -> bool:
        return token.kind in ("number", "name") or token.text == "("

    def _operand(self) -> Number:
        token = self._next
        self._at += token.kind != "end"
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name":
            return self._parse_named(token.text)
        if token.text != "(":
            where = "at the end" if token.kind == "end" else f"where {token.text!r} stands"
            raise BadExpressionError(f"a number is missing {where}")
        value = self._sum()
        self._expect_close()
        return value

    def _number(self, token: _Token) -> Number:
        """Parse a number; outside of calls, commas may separate thousands."""
        text, end = token.text, token.end
        grouped = not self._calls and text.isdigit() and len(text) <= 3
        while grouped and self._next.text == "," and self._next.start == end:
            group = self._tokens[self._at + 1]
            whole = group.text.partition(".")[0]
            if group.kind != "number" or group.start != end + 1 or len(whole) != 3 or not whole.isdigit():
                break
            text, end = f"{text},{group.text}", group.end
            self._at += 2
        digits, _, exponent = text.replace(",", "").lower().partition("e")
        if len(exponent) > 4:
            raise BadExpressionError("the result is too large")
        return _check_size(Fraction(digits) * Fraction(10) ** int(exponent or 0))

    def _parse_named(self, name: str) -> Number:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        function = FUNCTIONS.get(name.lower())
        if function is None:
            known = ", ".join(sorted(FUNCTIONS))
            raise BadExpressionError(f"{name!r} is not known; there are {known}, pi and e")
        if not self._takes("("):
            raise BadExpressionError(f"{name} needs its arguments in brackets")
        self._calls += 1
        arguments = [self._sum()]
        while self._takes(","):
            arguments.append(self._sum())
        self._calls -= 1
        self._expect_close()
        try:
            return _check_size(function(*arguments))
        except (TypeError, ValueError) as error:
            if isinstance(error, BadExpressionError):
                raise
            raise BadExpressionError(f"{name} has no value for these arguments") from None

    def _expect_close(self) -> None:
        if not self._takes(")"):
            raise BadExpressionError("a bracket is not closed")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadExpressionError("too many brackets and signs within each other")


def _check_size(value: Number) -> Number:
    if isinstance(value, complex) or value != value:
        raise BadExpressionError("the result is no real number")
    if isinstance(value, float):
        if math.isinf(value):
            raise BadExpressionError("the result is too large")
    elif max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise BadExpressionError("the result is too large")
    return value


def power(base: Number, exponent: Number) -> Number:
    """Return a power, exact for whole exponents and for roots that are exact. Raises `BadExpressionError`."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if bits > 1 and abs(exponent) * (bits - 1) > MAX_BITS:
                raise BadExpressionError("the result is too large")
            return _check_size(base ** int(exponent))
        if exponent == Fraction(1, 2):
            return root(base)
    if base < 0 and exponent != int(exponent):
        raise BadExpressionError("the result is no real number")
    return _check_size(float(base) ** float(exponent))


def root(value: Number) -> Number:
    """Return the square root, exact for squares. Raises `BadExpressionError` below 0."""
    if value < 0:
        raise BadExpressionError("the result is no real number")
    if isinstance(value, Fraction):
        above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if above**2 == value.numerator and below**2 == value.denominator:
            return Fraction(above, below)
    return math.sqrt(value)


def _factorial(value: Number) -> Number:
    if value != int(value) or not 0 <= value <= MAX_FACTORIAL:
        raise BadExpressionError(f"a factorial needs a whole number from 0 to {MAX_FACTORIAL}")
    return _check_size(Fraction(math.factorial(int(value))))


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    """Round half away from zero, unlike Python's `round`."""
    if digits != int(digits) or not -100 <= digits <= 100:
        raise BadExpressionError("round needs a whole number of digits, 100 at most")
    shift = Fraction(10) ** int(digits)
    return Fraction(math.floor(abs(Fraction(value)) * shift + Fraction(1, 2))) / shift * (1 if value >= 0 else -1)


def _gcd(*values: Number) -> Number:
    if any(value != int(value) for value in values):
        raise BadExpressionError("gcd needs whole numbers")
    return Fraction(math.gcd(*map(int, values)))


_PRODUCTS: dict[str, Callable[[Number, Number], Number]] = {
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: Fraction(a // b),
    "%": lambda a, b: a % b,
}
# Functions by name.
FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": root,
    "abs": abs,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "round": _round,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "factorial": _factorial,
    "gcd": _gcd,
    "exp": math.exp,
    "log": math.log,
    "ln": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
}
