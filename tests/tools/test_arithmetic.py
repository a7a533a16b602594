import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import each
from webgym_cli.tools.arithmetic import FUNCTIONS, MAX_CHARACTERS, BadExpressionError, evaluate, format_number
from webgym_cli.tools.builtin import calculator


@each(
    ("expression", "result"),
    [
        ("12*50/60", "10"),
        ("1,000+5", "1005"),
        ("1,234,567.5*2", "2469135"),
        ("max(1,000)", "1"),
        ("50%", "0.5"),
        ("50%*80", "40"),
        ("200%-1", "1"),
        ("12%5", "2"),
        ("12 % (5)", "2"),
        ("$5*3", "15"),
        ("-2^2", "-4"),
        ("2^-1", "0.5"),
        ("2^3^2", "512"),
        ("2**10", "1024"),
        ("7//2", "3"),
        ("5!", "120"),
        ("3!!", "720"),
        ("--5", "5"),
        ("1/3", "0.3333333333"),
        ("0.1+0.2", "0.3"),
        ("100.50", "100.5"),
        ("1234567.8", "1234567.8"),
        ("1.5e3", "1500"),
        ("2**100", "1267650600228229401496703205376"),
        ("sqrt(16)", "4"),
        ("sqrt(2)", "1.414213562"),
        ("9^0.5", "3"),
        ("2 × 3 ÷ 4 − 1", "0.5"),
        ("[1+2]*3", "9"),
        ("round(2.5)", "3"),
        ("round(-2.345, 2)", "-2.35"),
        ("log(8, 2)", "3"),
        ("gcd(12, 18)", "6"),
        ("min(3, 1, 2) + abs(-4) + floor(2.7) + ceil(2.1)", "10"),
        ("cos(0) + sin(0)", "1"),
        ("2*pi", "6.283185307"),
        ("exp(0)", "1"),
        ("factorial(10)", "3628800"),
    ],
)
def test_arithmetic(expression, result):
    assert calculator(expression) == result


@each(
    ("expression", "reason"),
    [
        ("", "a number is missing at the end"),
        ("2+", "a number is missing at the end"),
        ("2+2=4", "'=' is not expected there"),
        ("3 x 4", "'x' is not expected there"),
        ("12,34", "only numbers"),
        ("12345,678", "only numbers"),
        ("10 / 0", "division by zero"),
        ("10 % 0", "division by zero"),
        ("0^-1", "division by zero"),
        ("((1", "was never closed"),
        ("__import__('os')", "is no number"),
        ("__import__(1)", "'__import__' is not known"),
        ("(1).real", "only numbers"),
        ("1if 2 else 3", "only numbers"),
        ("1_0", "not expected"),
        ("5m", "'m' is not expected there"),
        ("open(1)", "'open' is not known"),
        ("sqrt", "arguments in brackets"),
        ("sqrt(-1)", "no real number"),
        ("(-8)^(1/3)", "no real number"),
        ("log(0)", "log has no value"),
        ("sqrt(1, 2)", "sqrt has no value"),
        ("round(1, 1000)", "100 at most"),
        ("gcd(1.5, 2)", "whole numbers"),
        ("2.5!", "a factorial needs"),
    ],
)
def test_what_is_no_arithmetic_is_told(expression, reason):
    with pytest.raises(BadExpressionError, match=reason.replace("(", r"\(")):
        evaluate(expression)


LARGE = ("9**9**9**9", "10^100000", "1e99999", "1e9999*1e9999", "(2^4000)^4000", "400!!", "(10^300)^(10^300)")
LONG = ("(" * 400 + "1" + ")" * 400, "-" * 999 + "1", "1+" * MAX_CHARACTERS + "1")


@each("expression", [*LARGE, "exp(1000)", "2.5^9999", "10^1000*10^1000"])
def test_no_value_is_too_large_to_be_refused(expression):
    with pytest.raises(BadExpressionError, match=r"too large|a factorial needs|no real number"):
        evaluate(expression)


@each("expression", LONG)
def test_nothing_is_too_long_or_too_deep_to_be_refused(expression):
    with pytest.raises(BadExpressionError, match=r"longer than|within each other|too many nested"):
        evaluate(expression)


def test_the_longest_sum_is_evaluated():
    assert format_number(evaluate("1+" * (MAX_CHARACTERS // 2 - 1) + "1")) == str(MAX_CHARACTERS // 2)


@given(st.text(alphabet="0123456789.,+-*/%^!() eE" + "".join(FUNCTIONS), max_size=60))
def test_any_text_has_a_number_or_a_reason(text):
    try:
        result = format_number(evaluate(text))
    except BadExpressionError as error:
        assert str(error)
    else:
        assert result


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_whole_numbers_are_exact(a, b, c):
    assert evaluate(f"({a})*({b})+{c}") == a * b + c
    assert evaluate(f"({a})/{c}") * c == a
