import random
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.tables import each
from webgym_cli.records.task import Task
from webgym_cli.scoring import numbers
from webgym_cli.scoring.math import (
    math_equal_reward,
    math_equal_reward_think,
    math_equal_reward_tool,
    math_reward_string_equal,
    math_reward_thought_with_tool,
)
from webgym_cli.scoring.numbers import answers_equal, parse_answer
from webgym_cli.scoring.registry import REWARDS, reward_fields
from webgym_cli.scoring.statements import extract_boxed, extract_reference, find_answers
from webgym_cli.scoring.text import (
    format_reward,
    infoseek_reward,
    normalise,
    ok_vqa_reward,
    qa_em_format_reward,
    qa_em_reward,
    qa_em_reward_tool_call,
    qa_f1_reward,
    qa_f1_reward_tool,
)


def read_pairs():
    """Return (response, answer, whether it is right) by kind; `== ` is right, `!=` wrong, a pilcrow a line feed."""
    pairs, kind = defaultdict(list), ""
    for line in Path(__file__).with_name("answer_pairs.txt").read_text().replace("\n", " \n").splitlines():
        if line.startswith("# "):
            kind = line[2:].strip()
            continue
        sign = max(" == ", " != ", key=line.rfind)
        response, _, answer = line.replace("¶", "\n").rpartition(sign)
        pairs[kind].append((response, answer.strip(), sign == " == "))
    return pairs


PAIRS = read_pairs()
_NUMBER = re.compile(r"(?<![\w.,/:^-])(\d[\d,]*(?:\.\d+)?)(?![\w/:^%])")
# How a policy states its answer.
STATEMENTS = ("\\boxed{%s}", "The answer is $%s$ because it is.", "%s")
TOOL = [{"role": "user"}, {"role": "assistant"}, {"role": "tool", "content": "72"}, {"role": "assistant"}]


@pytest.fixture(scope="module", autouse=True)
def compared_once():
    """Each pair of expressions is compared once: two of three of these tests' are the same again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "is_equal_latex", cache(numbers.is_equal_latex))
        yield


@each(
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
        ("72", 72, True, 1.0),
        ("72", 72.0, True, 1.0),
        ("1000", "10 * 100 = <<10*100=1000>>1000\n#### 1,000", True, 1.0),
        ("none", "72", True, 0.1),
    ],
)
def test_string_equality_is_as_documented(response, answer, used, value):
    assert math_reward_string_equal(response, answer, TOOL if used else TOOL[:2]) == value


@pytest.mark.parametrize(("response", "answer", "right"), [("72", 72, 1.0), ("9", ["8", "9"], 1.0), ("71", "72", 0.0)])
def test_the_reward_of_equality_is_its_accuracy(response, answer, right):
    assert math_equal_reward(response, answer) == {"reward": right, "acc": right}


@each("kind", PAIRS)
def test_right_and_wrong_answers_in_the_forms_of_gsm8k_and_math(kind):
    assert [pair for pair in PAIRS[kind] if bool(math_equal_reward(*pair[:2])["acc"]) is not pair[2]] == []


@pytest.mark.parametrize("mark", ["**", "*", "`", "__"])
def test_emphasis_changes_no_reading(mark):
    plain = [pair for pairs in PAIRS.values() for pair in pairs if not re.search(r"[\\$*`]", pair[0])]
    pairs = [(_NUMBER.sub(rf"{mark}\1{mark}", response), answer, right) for response, answer, right, *_ in plain]
    assert len(pairs) > 100
    assert [pair for pair in pairs if bool(math_equal_reward(*pair[:2])["acc"]) is not pair[2]] == []


@pytest.mark.parametrize(
    "response", ["2 *3* 72", "It is 2**3**72", "**72** or **73**", "not **72**", "`x = 72` or `73`"]
)
def test_emphasis_hides_no_operator(response):
    assert math_equal_reward(response, "72")["acc"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_that_differs_in_a_digit_a_sign_a_variable_or_a_unit_is_wrong(seed):
    draw = random.Random(seed)
    number, factor = draw.randint(10**5, 10**12), draw.randint(2, 30)
    one, other = draw.sample("abcdkmnpqrstuvwxyz", 2)
    unit, another = draw.sample(["cm", "kg", "hours", "%", "dollars", "apples", "oranges"], 2)
    differing = [
        (f"{number:,}", f"{number + 1}"),
        (f"-{number}", f"{number}"),
        (f"0.{number}1", f"0.{number}2"),
        (f"{factor}{one}", f"{factor}{other}"),
        (f"{factor}{one}", f"{factor}"),
        (f"-{factor}i", f"-{factor}"),
        (f"{factor}+{factor}i", f"{factor}-{factor}i"),
        (f"{factor} {unit}", f"{factor} {another}"),
        (f"({factor}, {number})", f"({number}, {factor})"),
    ]
    for statement in STATEMENTS:
        for given, wanted in differing:
            assert math_equal_reward(statement % given, given)["acc"] == 1.0, (statement, given)
            assert math_equal_reward(statement % given, wanted)["acc"] == 0.0, (statement, given, wanted)
            assert math_equal_reward(statement % wanted, given)["acc"] == 0.0, (statement, wanted, given)


@pytest.mark.parametrize(("response", "used", "value"), [("72", True, 1.0), ("7", True, 0.1), ("72", False, 0.0)])
def test_equality_that_wants_a_tool(response, used, value):
    result = math_equal_reward_tool(response, "72", TOOL if used else TOOL[:2])
    assert result == {"reward": value, "acc": float(response == "72")}


def test_the_parts_of_a_response():
    assert extract_boxed("\\boxed{\\frac{1}{2}} \\boxed{") == "\\frac{1}{2}"
    assert extract_boxed("\\boxed{" * 1000) is None
    assert math_equal_reward("A) " * 1000, "42")["acc"] == 0.0
    assert math_equal_reward("The answer (" + "a" * 20_000 + " is 5", "5")["acc"] == 1.0
    assert format_reward("\n" * 10**5 + "\\boxed{7}\n" + "\n" * 10**5 + "x") == 1.0  # in linear time
    assert extract_boxed("nothing") is None
    assert extract_boxed("\\boxed{1} \\boxed{}") == ""
    assert find_answers("Final answer: 7. Or not")[0] == "7"
    assert extract_reference("answer is 7") is None
    assert find_answers("from 3 to -4.5 is -7.5") == ["from 3 to -4.5 is -7.5", "-7.5"]
    assert find_answers("50-24") == ["50-24"]
    assert parse_answer("12 km/h").value == 12
    assert parse_answer("many").value is None
    assert parse_answer("1" * 301).value is None
    assert answers_equal("A b", "a B")


@each(
    ("text", "plain"),
    [
        ("The  Cat's hat!", "cats hat"),
        ("an A-Team", "ateam"),
        ("  ", ""),
        ("the theatre", "theatre"),
        ("?!", "?!"),
        ("1_2", "1_2"),
    ],
)
def test_squads_normalisation(text, plain):
    assert normalise(text) == plain


@each(
    ("response", "answer", "right"),
    [
        ("<think>Paris or Rome?</think>Paris", "Paris", True),
        ("<think><answer>Rome</answer></think>\n<answer>**Paris**</answer>", "Paris", True),
        ("<think><answer>Paris</answer></think>I don't know", "Paris", False),
        ("<think>\\boxed{Paris}", "Paris", False),
        ("<answer>Rome</answer><answer>Paris</answer>", "Rome", False),
        ("“Paris”", "Paris", True),
        ("北京。", "北京", True),
        ("Par\u200bis\u200f", "Paris", True),
        ("\u2212 5", "-5", False),
        ("\u22125", "-5", True),
        ("\u22125", "5", False),
        *((f"{dash}5", "5", False) for dash in "－﹣—"),
        *((f"{dash}5", "-5", True) for dash in "－﹣—"),
        ("5′", "5″", False),
        ("50‰", "50", False),
        ("Paris—London", "Paris-London", True),
        ("1998–2003", "1998-2003", True),
        ("1998–2003", "19982003", False),
        ("O’Brien", "O'Brien", True),
        ("Раris", "Paris", False),  # with Cyrillic letters
        ("Paris or Rome", "Paris", False),
        ("Apple TV+", "Apple TV", True),
        ("Rh-", "Rh+", False),
        ("TV-MA", "TV MA", False),
        ("E-mail", "email", True),
    ],
)
def test_an_exact_match_reads_no_thoughts_and_drops_the_punctuation_of_other_scripts(response, answer, right):
    assert qa_em_reward(response, answer)["em"] == right


@pytest.mark.parametrize("thoughts", ["<think>Rome or Paris or London</think>", "Rome or London</think>\n"])
def test_no_reward_of_texts_reads_thoughts(thoughts):
    response = f"{thoughts}Paris"
    assert ok_vqa_reward(response, ["Paris"]) == infoseek_reward(response, "Paris") == 1.0
    assert qa_em_reward_tool_call(response, "Paris", messages_of(response, tools=0))["em"] == 1.0
    assert ok_vqa_reward(f"{thoughts}Rome", ["Paris"]) == infoseek_reward(f"{thoughts}Rome", "Paris") == 0.0


@each(
    ("response", "value"),
    [
        ("so \\boxed{7}", 1.0),
        ("<think>\\boxed{6}?</think> \\boxed{7}", 1.0),
        ("<think>\\boxed{6}</think> 7", 0.0),
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


def messages_of(*contents, tools=1):
    """An episode's messages: responses, each but the last followed by a tool's result."""
    messages = [{"role": "user", "content": "?"}]
    for number, content in enumerate(contents):
        messages.append({"role": "assistant", "content": content})
        if number < tools:
            messages.append({"role": "tool", "content": "Paris"})
    return messages


@each(
    ("reward", "contents", "tools", "value"),
    [
        (math_equal_reward_think, ("<think>a</think>", "b</think> 72"), 1, 1.0),
        (math_equal_reward_think, ("<think>a</think>", "b</think> 71"), 1, 0.1),
        (math_equal_reward_think, ("<think>a</think>", "72"), 1, 0.0),
        (math_equal_reward_think, ("<think>a</think>", "b</think> 72"), 0, 0.0),
        (math_reward_thought_with_tool, ("Thought: a", "thought: 72"), 1, 1.0),
        (math_reward_thought_with_tool, ("Thought: a", "thought: 71"), 1, 0.1),
        (math_reward_thought_with_tool, ("Thought: a", "72"), 1, 0.0),
        (math_reward_thought_with_tool, ("Thought: a", "thought: 72"), 0, 0.0),
        (qa_em_format_reward, ("<think>a</think>", "<answer>72</answer>"), 1, 1.0),
        (qa_em_format_reward, ("<think>a</think>", "<answer>71</answer>"), 1, 0.1),
        (qa_em_format_reward, ("a", "<answer>72</answer>"), 1, 0.0),
        (qa_em_format_reward, ("<think>a</think>", "72"), 1, 0.0),
        (qa_f1_reward_tool, ("a", "b", "72"), 2, 1.0),
        (qa_f1_reward_tool, ("a", "72"), 1, 0.0),
    ],
)
def test_form_and_tools_are_graded_as_in_the_examples(reward, contents, tools, value):
    assert reward(contents[-1], "72", messages_of(*contents, tools=tools))["reward"] == value


def test_the_answer_may_be_the_last_tools_result():
    by_tool = qa_em_reward_tool_call("whatever", "paris", messages_of("call", tools=1))
    assert (by_tool["reward"], by_tool["has_tool_call_answer"]) == (1.0, 1.0)
    in_words = qa_em_reward_tool_call("Paris", ["Rome", "paris"], messages_of("Paris", tools=0))
    assert (in_words["reward"], in_words["has_tool_call_answer"], in_words["has_tool_calling"]) == (1.0, 0.0, 0.0)


@each(
    ("given", "wanted", "value"),
    [
        ("the cat sat", "a cat", 2 * 1 / 3),  # words: cat sat / cat; precision 1/2, recall 1
        ("red red fish", "red fish fish", 2 * 2 / 6),  # shared: red once, fish once
        ("x", "y", 0.0),
        ("", "", 1.0),
        ("", "y", 0.0),
        ("same", "Same.", 1.0),
        # yes and no are right whole or not at all
        *(("yes it is", "yes", 0.0), ("no", "no way", 0.0), ("noanswer", "yes", 0.0), ("Yes.", "yes", 1.0)),
    ],
)
def test_f1_over_words(given, wanted, value):
    assert ok_vqa_reward(given, [wanted]) == pytest.approx(value)


def test_exact_match_and_f1_take_the_best_of_several_answers():
    assert qa_em_reward("<answer>The Paris</answer>", ["London", "paris"]) == {"reward": 1.0, "em": 1.0}
    assert qa_em_reward("Paris, France", "Paris")["reward"] == 0.0
    rewards = [qa_em_reward(text, 72.0)["reward"] for text in ("72", "72.0", "7.2")]
    assert rewards == [qa_f1_reward(text, 72.0)["reward"] for text in ("72", "72.0", "7.2")] == [1.0, 1.0, 0.0]
    result = qa_f1_reward("\\boxed{Paris France}", ["Paris", "Rome"])
    assert (result["reward"], result["f1"], result["em"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3), 0.0)
    assert qa_f1_reward("x", [])["reward"] == 0.0
    result = qa_f1_reward("red green", ["green blue white", "black"])  # one word of 2, of 3: f1 = 2 / (2 + 3)
    assert result == {"reward": 0.4, "f1": 0.4, "precision": 0.5, "recall": pytest.approx(1 / 3), "em": 0.0}
    assert ok_vqa_reward("a red bus", ["car", "red bus"]) == 1.0
    assert ok_vqa_reward("red bus", "red bus") == ok_vqa_reward("5", [5]) == 1.0
    assert ok_vqa_reward("b", "red bus") == infoseek_reward("b", "car", "red bus") == 0.0
    assert infoseek_reward("red bus", "car", ["red bus", {"range": [1, 2]}]) == 1.0


@each(
    ("response", "answer", "right"),
    [
        ("3.5", "35", False),
        ("3.5", "3.5.", True),
        ("-5", "5", False),
        ("1/2", "12", False),
        ("10-12", "1012", False),
        ("1,2", "12", False),
        ("1,2", "1, 2", True),
        ("3+4", "34", False),
        ("5'10", "510", False),
        ("1,000", "1000", True),
        ("1,23,456", "123456", True),
        ("A, B", "B", False),
        ("A, B", "a b", True),
        ("A.", "a", True),
        ("1e-5", "1e5", False),
        ("10:00 UTC+2", "10:00 UTC-2", False),
        ("2**3", "23", False),
        ("5+", "5", False),
        ("<5", "5", False),
        ("<= 5", "< 5", False),
        ("x^2", "x2", False),
        ("\\infty", "-\\infty", False),
        ("C++", "C", False),
        ("C#", "C++", False),
        ("A+", "A-", False),
        *(("a+b", "ab", False), ("x<1", "x>1", False), ("y=-x", "y=x", False), ("n-k", "nk", False)),
        *(("H-E-B", "HEB", True), ("k-i-a", "kia", True), ("J-K", "jk", True), ("J-K", "j-k", True)),
        *(("S-p", "sp", True), ("-a cat", "a cat", True), ('"-a"', "a", True), ("4-H", "4H", True)),
        *(("-x", "x", False), ("y = -x", "y = x", False), ("n-k+2", "nk+2", False), ("a-b 2", "ab 2", False)),
        *(("n-k.", "n-k", True), ("$n-k$", "n-k", True), ("X=-Y", "X=Y", False), ("H-E-B, 1905", "HEB, 1905", True)),
        *(("H-E-B 2", "HEB 2", True), ("3-d", "3D", True), ("x-ray", "xray", True), ("e-mail", "email", True)),
        ("AB-", "AB+", False),
        ("Plan A - now.", "plan a now", True),
        ("It-self", "itself", True),
        ("", "A", False),
        ("The.", "A", False),
        ("(a)", "A", True),
        ("\\boxed{\\text{Paris}}", "Paris", True),
        ("None", None, False),
    ],
)
def test_exact_match_keeps_what_makes_a_number_or_a_choice(response, answer, right):
    assert qa_em_reward(response, answer)["em"] == float(right)


def test_golden_answers_are_the_answer():
    task = Task(id="q", instruction="Q", environment="tools", extra={"golden_answers": ["72", "73"]})
    assert REWARDS.find("qa_em_reward").bound({**reward_fields(task), "final_response": "73"})["answer"] == ["72", "73"]
