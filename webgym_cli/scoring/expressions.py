"""Equality of two expressions in LaTeX by `math-verify`, exact where it rounds. Imports sympy: for `latex_script` only.

math-verify decides; the checks here refuse what it lets pass: it drops the base of `11_2` and the prime of `x'`, adds
the numbers of `5 6`, takes a point for a set and `x+1=5` for 5, rounds to six decimals, and ignores case.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from math_verify.grader import is_assignment_relation, is_equation, is_relation

# LaTeX only: math-verify passes plain expressions to sympy's parse_expr, which evaluates them as Python. Without its
# units: the variable of 5m and 5t is a unit to it.
_LATEX = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
    )
)
# Digits of the comparison of numbers without a closed form.
_PRECISION = 100
# Minimum of decimals, and of significant digits, of a decimal number that stands for one without a finite decimal form.
_ROUNDED_DIGITS = 6

_UNCLEAR = re.compile(r"(?<![_\d])(?<!\\frac )\d+\s+\d|\d\.\d*\.\d|\d\s*\.\s+\d")
_BASES = re.compile(r"\d\s*_\s*\{?\s*(\d+)")
_PRIMES = re.compile(r"'|\\prime")
_COMMANDS = re.compile(r"\\[A-Za-z]+")
_DECIMAL = re.compile(r"[-+]?\d*\.\d+")
# What sympy raises about expressions that it can't handle.
_UNSOLVED = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RecursionError, TypeError, ValueError)


def compare(given: str, wanted: str) -> bool:
    """Whether two expressions in LaTeX are equal; False if one can't be parsed or they can't be compared."""
    if not _are_alike(given, wanted):
        return False
    ours, theirs = _parse(given), _parse(wanted)
    if ours is None or theirs is None:
        return False
    try:
        return _is_equal(ours, theirs) or _rounds_to(given, theirs) or _rounds_to(wanted, ours)
    except _UNSOLVED:
        return False


def _are_alike(given: str, wanted: str) -> bool:
    """Whether two texts agree in what math-verify drops: brackets, bases, primes, and the case of letters."""
    if _UNCLEAR.search(given) or _UNCLEAR.search(wanted):
        return False
    if _BASES.findall(given) != _BASES.findall(wanted):
        return False
    if len(_PRIMES.findall(given)) != len(_PRIMES.findall(wanted)):
        return False
    if _differ_in_case(_letters(given), _letters(wanted)):
        return False
    one, other = _brackets(given), _brackets(wanted)
    return not one or not other or one == other


def _letters(text: str) -> set[str]:
    """Return the commands of a text, and the letters outside them."""
    return {*_COMMANDS.findall(text), *filter(str.isalpha, _COMMANDS.sub("", text))}


def _differ_in_case(one: set[str], other: set[str]) -> bool:
    return not {it.lower() for it in one - other}.isdisjoint(it.lower() for it in other - one)


def _brackets(text: str) -> str:
    """Return the outer brackets of a list; empty without them."""
    plain = re.sub(r"\\(?:left|right)|\\(?=[{}])|\s", "", text)
    return plain[0] + plain[-1] if "," in plain and plain[0] in "([{" and plain[-1] in ")]}" else ""


def _parse(text: str) -> Any:
    """Return the parsed expression with exact numbers; None if it can't be parsed or is not defined (1/0)."""
    # Of a text that can't be parsed, math-verify would else take a fraction within it.
    expressions = parse(
        f"${text}$",
        extraction_config=[_LATEX],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    if not expressions or not hasattr(expressions[0], "atoms"):
        return None
    exact = {number: sympy.Rational(str(number)) for number in expressions[0].atoms(sympy.Float)}
    bound = expressions[0].has(sympy.Sum, sympy.Product)  # over i
    imaginary = {it: sympy.I for it in expressions[0].atoms(sympy.Symbol) if it.name == "i" and not bound}
    with sympy.evaluate(isinstance(expressions[0], sympy.Expr)):  # `1/2 = 0.5` would become true
        parsed = expressions[0].xreplace({**exact, **imaginary})
    if isinstance(parsed, sympy.Expr):
        parsed = parsed.doit()
    return None if parsed.has(sympy.nan, sympy.zoo) else parsed


def _is_equal(ours: Any, theirs: Any) -> bool:
    if is_equation(ours) and is_equation(theirs):
        return _is_same_equation(ours, theirs)
    if any(is_equation(one) and not _names_value(one) for one in (ours, theirs)):
        return False
    # A pair or an interval is no set; only the values of named variables may be given for a point, in its order.
    if _is_pair(ours) and isinstance(theirs, sympy.FiniteSet):
        return False
    if _is_pair(theirs) and isinstance(ours, sympy.FiniteSet) and not all(map(is_equation, ours.args)):
        return False
    if verify(theirs, ours, numeric_precision=_PRECISION, allow_set_relation_comp=True, timeout_seconds=None):
        return True
    if is_relation(ours) and is_relation(theirs):
        # of the same variable, with the same solutions: `1<x<3` and `3>x>1`
        same = len(ours.free_symbols) == 1 and ours.free_symbols == theirs.free_symbols
        return same and bool(ours.as_set() == theirs.as_set())
    both = isinstance(ours, sympy.Expr) and isinstance(theirs, sympy.Expr)
    return both and sympy.simplify(ours - theirs) == 0


def _is_pair(value: Any) -> bool:
    return isinstance(value, sympy.Tuple | sympy.Interval)


def _names_value(equation: Any) -> bool:
    """Whether an equation gives a value: of a variable or function (`x=5`), or of a calculation that is right."""
    sides = [equation] if isinstance(equation, sympy.Eq) else list(equation._unsorted_args)
    left = sides[0].lhs
    # `x/2=5` and `|x|=5` are no values of x; `x+y=5` and `x+1/x=5` are values of the sum.
    is_calculation = left.has(sympy.Abs, sympy.floor, sympy.ceiling, sympy.exp, sympy.factorial)
    if is_assignment_relation(equation) and not is_calculation and left.atoms(sympy.Number) <= {sympy.S.NegativeOne}:
        return True
    if sides[-1].rhs.is_number and (len(left.free_symbols) > 1 or _adds_reciprocal(left)):
        return True
    if isinstance(left, sympy.Tuple | sympy.core.function.AppliedUndef):
        return True
    return not equation.free_symbols and all(_is_equal(side.lhs, side.rhs) for side in sides)


def _adds_reciprocal(expression: Any) -> bool:
    terms = [term for term in expression.args if term.free_symbols]
    return expression.is_Add and len(terms) > 1 and any(sympy.fraction(term)[1].free_symbols for term in terms)


def _is_same_equation(ours: Any, theirs: Any) -> bool:
    """Whether two equations say the same: their differences of sides are multiples of each other."""
    equations = [one for one in (ours, theirs) if isinstance(one, sympy.Eq)]
    sides = [(one.lhs, one.rhs) for one in equations]
    if len(sides) != 2 or not all(isinstance(part, sympy.Expr) for part in chain.from_iterable(sides)):
        return bool(verify(theirs, ours, numeric_precision=_PRECISION, timeout_seconds=None))
    (a, b), (c, d) = sides
    ratio = sympy.simplify((a - b) / (c - d))
    return bool(ratio.is_number and ratio.is_finite and ratio != 0)


def _rounds_to(decimal: str, exact: Any) -> bool:
    """Whether a decimal number is a number without a finite decimal form, rounded to six decimals or more."""
    text = decimal.strip()
    if not _DECIMAL.fullmatch(text) or not getattr(exact, "is_real", False) or not exact.is_number:
        return False
    if isinstance(exact, sympy.Rational) and pow(10, exact.q.bit_length(), exact.q) == 0:
        return False  # it has a finite decimal form
    digits = text.partition(".")[2]
    if len(digits) < _ROUNDED_DIGITS or len(text.lstrip("-+0.").replace(".", "")) < _ROUNDED_DIGITS:
        return False
    distance = abs(sympy.Rational(text) - exact).evalf(_PRECISION)
    return bool(distance * 2 <= sympy.Rational(1, 10 ** len(digits)))
