"""Evaluator of arithmetic expressions: exact where possible, with bounded work. Python parses them, and runs nothing.

    12*50/60   2^10   (1+2)/3   50%   12 % 5   1,000+5   sqrt(2)   5!   max(1, 2)   pi/4   1.5e3

Numbers are exact fractions until a function without an exact value (`sin`, most roots) makes them floats.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction

Number = Fraction | float

MAX_CHARACTERS = 1000
# Maximum size of a numerator or denominator: some 1200 digits.
MAX_BITS = 4096
MAX_FACTORIAL = 400

_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "$": None, "^": "**"})
# Thousands separators; within a call, a comma separates arguments.
_THOUSANDS = re.compile(r"[A-Za-z]\w*\([^()]*\)|(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_LEADING_ZEROS = re.compile(r"(?<![\w.])0+(?=\d)")
# A number and a name without a space, which Python reads after a warning on stderr: 1if.
_GLUED = re.compile(r"(?<![\w.])(?:\d++\.?+\d*+|\.\d++)(?:e[+-]?\d++)?+(?=[a-z_])", re.IGNORECASE)
_PERCENT = re.compile(r"%(?!\s*[\w(.])")
_CONSTANTS = {"pi": math.pi, "π": math.pi, "e": math.e}


class BadExpressionError(ValueError):
    """An expression can't be evaluated. The message is for its author, the policy."""


def evaluate(expression: str) -> Number:
    """Evaluate an expression, within a few milliseconds. Raises `BadExpressionError`."""
    if len(expression) > MAX_CHARACTERS:
        raise BadExpressionError(f"the expression is longer than {MAX_CHARACTERS} characters")
    text = _to_python(expression)
    try:
        return _evaluate(_parse(text), text.encode())
    except ZeroDivisionError:
        raise BadExpressionError("division by zero") from None
    except OverflowError:
        raise BadExpressionError("the result is too large") from None
    except RecursionError:
        raise BadExpressionError("too many brackets and signs within each other") from None


def format_number(value: Number) -> str:
    """Format a number: as an integer, else as a short exact decimal, else with ten significant digits."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.10g}"
    if value.denominator == 1:
        return str(value.numerator)
    short = f"{float(value):.15g}"
    return short if "e" not in short and Fraction(short) == value else f"{float(value):.10g}"


def _to_python(expression: str) -> str:
    """Return an expression in Python's syntax; its postfix operators become attributes: `5 .factorial`."""
    text = " ".join(expression.translate(_SIGNS).split())
    text = _THOUSANDS.sub(lambda match: match[0] if match[0][0].isalpha() else match[0].replace(",", ""), text)
    text = _GLUED.sub(r"\g<0> ", _LEADING_ZEROS.sub("", text))
    return _PERCENT.sub(" .percent", text.replace("!", " .factorial"))


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        place = text[(error.offset or 0) - 1 :][:1] if error.offset else ""
        missing = f"{place!r} is not expected there" if place else "a number is missing at the end"
        raise BadExpressionError(missing if error.msg.startswith("invalid syntax") else error.msg) from None
    except (ValueError, MemoryError):  # null bytes; nesting beyond the parser's stack
        raise BadExpressionError("the expression can't be read") from None


def _evaluate(node: ast.expr, text: bytes) -> Number:
    """Return the value of a part of an expression. `text`: the whole expression."""
    value: Number
    match node:
        case ast.Constant():
            value = _read_number(text[node.col_offset : node.end_col_offset].decode())
        case ast.Name(id=name) if name in _CONSTANTS:
            value = _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            operand = _evaluate(node.operand, text)
            value = -operand if isinstance(node.op, ast.USub) else operand
        case ast.BinOp() if type(node.op) in _OPERATORS:
            value = _OPERATORS[type(node.op)](_evaluate(node.left, text), _evaluate(node.right, text))
        case ast.Attribute(attr="factorial"):
            value = _factorial(_evaluate(node.value, text))
        case ast.Attribute(attr="percent"):
            value = _evaluate(node.value, text) / 100
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            value = _call(name, [_evaluate(argument, text) for argument in node.args])
        case ast.Name(id=name):
            raise _unknown(name)
        case _:
            raise BadExpressionError("only numbers, their operators and functions are understood")
    return _check_size(value)


def _read_number(text: str) -> Fraction:
    # A larger exponent takes long before it is found to be too large.
    if len(text.lower().partition("e")[2].lstrip("+-")) > 4:
        raise BadExpressionError("the result is too large")
    try:
        return Fraction(text)
    except ValueError:
        raise BadExpressionError(f"{text!r} is no number") from None


def _call(name: str, arguments: list[Number]) -> Number:
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise _unknown(name)
    try:
        return function(*arguments)
    except (TypeError, ValueError) as error:
        if isinstance(error, BadExpressionError):
            raise
        raise BadExpressionError(f"{name} has no value for these arguments") from None


def _unknown(name: str) -> BadExpressionError:
    known = ", ".join(sorted(FUNCTIONS))
    return BadExpressionError(f"{name!r} is not known; there are {known}, with their arguments in brackets, pi and e")


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


_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: operator.mod,
    ast.Pow: power,
}
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
    "ln": math.log,
    **{name: getattr(math, name) for name in ("exp", "log", "log10", "log2", "sin", "cos", "tan")},
}
