import pytest

from webgym_cli.scoring.math import math_equal_reward, math_equal_reward_tool, math_reward_string_equal
from webgym_cli.scoring.numbers import (
    answers_equal,
    extract_answer,
    extract_boxed,
    extract_last_number,
    matches_answer,
    parse_number,
)
from webgym_cli.scoring.text import f1_score, format_reward, normalise, qa_em_reward, qa_f1_reward

TOOL = [{"role": "user"}, {"role": "assistant"}, {"role": "tool", "content": "72"}, {"role": "assistant"}]


@pytest.mark.parametrize(
    ("response", "answer", "used", "value"),
    [
        ("72", "72", True, 1.0),
        ("The answer is 72.", "72", True, 1.0),
        ("72", "72", False, 0.0),
        ("71", "72", True, 0.1),
        ("$1,000", "1000", True, 0.1),
        ("3.50", "3.5", True, 0.1),
        ("-5", "5", True, 1.0),
        ("72 clips in 2 months", "72", True, 0.1),
        ("72", 72, True, 0.1),
        ("none", "72", True, 0.1),
    ],
)
def test_string_equality_is_as_documented(response, answer, used, value):
    assert math_reward_string_equal(response, answer, TOOL if used else TOOL[:2]) == value


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("72", 72),
        ("72.0", "72"),
        ("The answer is 72.", "72"),
        ("$1,000", "1000"),
        ("1{,}000", "1000"),
        ("10\\,000", "10000"),
        ("3.50", "3.5"),
        ("\\boxed{72}", "72"),
        ("First \\boxed{1}, then \\boxed{\\frac{1}{2}}.", "0.5"),
        ("\\boxed{\\dfrac{3}{4}}", "0.75"),
        ("\\frac12", "1/2"),
        ("-\\frac{1}{2}", "-0.5"),
        ("2\\frac{1}{2}", "2.5"),
        ("1 1/2", "1.5"),
        ("\\frac{\\sqrt{2}}{2}", "0.70710678"),
        ("2\\sqrt{3}", "\\sqrt{12}"),
        ("\\sqrt[3]{8}", "2"),
        ("1.5\\times10^{3}", "1500"),
        ("50%", "0.5"),
        ("50%", "50"),
        ("50\\%", "50%"),
        ("x = 5", "5"),
        ("12\\text{ cm}", "12"),
        ("90^\\circ", "90"),
        ("72 dollars", "72"),
        ("**72**", "72"),
        ("\\(72\\)", "72"),
        ("<answer>72</answer> or so, 3 times", "72"),
        ("48 + 24 = <<48+24=72>>72 clips.\n#### 72", "She sold 48.\n#### 72"),
        ("50 - 24 is 26", "26"),
        ("So the total is 12.", "12"),
        ("It was (B)", "it was (b)"),
        ("\\boxed{(3, 4)}", "(3,4)"),
        ("9", ["8", "9"]),
        ("\\boxed{\\left(1,2\\right)}", "(1,2)"),
        ("\\boxed{\\text{Monday}}", "Monday"),
        ("\\boxed{(C)}", "C"),
        ("\\boxed{x+1}", "1+x"),
        ("\\boxed{\\frac{a}{b}}", "a/b"),
        ("\\boxed{x^2-1}", "(x-1)(x+1)"),
        ("\\boxed{\\{1,2\\}}", "\\{2,1\\}"),
        ("\\boxed{x \\le 3}", "x\\leq 3"),
        ("\\boxed{(3,4)\\cup(1,2)}", "(1,2)\\cup(3,4)"),
        ("\\boxed{\\begin{pmatrix}1\\\\2\\end{pmatrix}}", "\\begin{pmatrix}1 \\\\ 2\\end{pmatrix}"),
    ],
)
def test_numbers_are_equal_however_they_are_written(response, answer):
    assert math_equal_reward(response, answer) == {"reward": 1.0, "acc": 1.0}


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("-5", "5"),
        ("71", "72"),
        ("1/3", "0.33"),
        ("0.72", "72"),
        ("72 clips in 2 months", "72"),
        ("48+24", "72"),
        ("12*50/60", "10"),
        ("", "72"),
        ("I don't know", "72"),
        ("\\boxed{}", "72"),
        ("\\boxed{(5, 4)}", "(3,4)"),
        ("It was (C)", "(B)"),
        ("9^9^9^9^9", "72"),
        ("__import__('os')", "72"),
        ("\\boxed{x+2}", "x+1"),
        ("\\boxed{[1,2]}", "(1,2)"),
        ("\\boxed{(2,1)}", "(1,2)"),
        ("\\boxed{\\text{Tuesday}}", "Monday"),
        ("\\boxed{god}", "dog"),
        ("\\boxed{\\text{yes}}", "\\text{no}"),
        ("\\boxed{y=2x}", "y=3x"),
    ],
)
def test_other_answers_are_not_equal(response, answer):
    assert math_equal_reward(response, answer) == {"reward": 0.0, "acc": 0.0}


@pytest.mark.parametrize(("response", "used", "value"), [("72", True, 1.0), ("7", True, 0.1), ("72", False, 0.0)])
def test_equality_that_wants_a_tool(response, used, value):
    result = math_equal_reward_tool(response, "72", TOOL if used else TOOL[:2])
    assert result == {"reward": value, "acc": float(response == "72")}


def test_the_parts_of_a_response():
    assert extract_boxed("\\boxed{\\frac{1}{2}} \\boxed{") == "\\frac{1}{2}"
    assert extract_boxed("\\boxed{" * 1000) is None
    assert extract_boxed("nothing") is None
    assert extract_answer("Final answer: 7. Or not") == "7"
    assert extract_answer("no mark 7") is None
    assert extract_answer("answer is 7", reference=True) is None
    assert extract_last_number("from 3 to -4.5") == "-4.5"
    assert extract_last_number("50-24") == "50-24"
    assert parse_number("12 km/h") == 12
    assert parse_number("many") is None
    assert parse_number("1" * 301) is None
    assert answers_equal("A b", "a B")
    assert matches_answer("It is 7", "7")


@pytest.mark.parametrize(
    ("text", "plain"), [("The  Cat's hat!", "cats hat"), ("an A-Team", "ateam"), ("  ", ""), ("the theatre", "theatre")]
)
def test_squads_normalisation(text, plain):
    assert normalise(text) == plain


@pytest.mark.parametrize(
    ("given", "wanted", "value"),
    [
        ("the cat sat", "a cat", 2 * 1 / 3),  # words: cat sat / cat; precision 1/2, recall 1
        ("red red fish", "red fish fish", 2 * 2 / 6),  # shared: red once, fish once
        ("x", "y", 0.0),
        ("", "", 1.0),
        ("", "y", 0.0),
        ("same", "Same.", 1.0),
    ],
)
def test_f1_over_words(given, wanted, value):
    assert f1_score(given, wanted) == pytest.approx(value)


def test_exact_match_and_f1_take_the_best_of_several_answers():
    assert qa_em_reward("<answer>The Paris</answer>", ["London", "paris"]) == {"reward": 1.0, "em": 1.0}
    assert qa_em_reward("Paris, France", "Paris")["reward"] == 0.0
    found = qa_f1_reward("\\boxed{Paris France}", ["Paris", "Rome"])
    assert found == {"reward": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3), "em": 0.0}
    assert qa_f1_reward("x", [])["reward"] == 0.0


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("so \\boxed{7}", 1.0),
        ("<answer>x</answer>", 1.0),
        ("\\boxed{1} \\boxed{2}", 0.0),
        ("\\boxed{1} <answer>1</answer>", 0.0),
        ("\\boxed{ }", 0.0),
        ("\\boxed{7", 0.0),
        ("7", 0.0),
    ],
)
def test_format(response, value):
    assert format_reward(response) == value
