import pytest

from tests.environments.webarena.webarena_pages import FakeJudge, strings
from tests.tables import each
from tests.ticks import count_ticks
from webgym_cli.environments.webarena.text_match import (
    FuzzyContext,
    contains_text,
    matches_exactly,
    matches_expected,
    meets_comparison,
    needs_judge,
)
from webgym_cli.errors import UsageError
from webgym_cli.records.webarena import Expected

NOBODY = FuzzyContext("How many?", "", None)


@each(
    ("text", "wanted", "equal"),
    [
        ("Yes", "yes", True),
        ('"Yes"', "yes", True),
        ("'N/A'", "n/a", True),
        ("\"'N/A'\"", "n/a", True),
        ("'\" Yes \"'", "yes", True),
        ("  yes\n", "yes", True),
        ("yes.", "yes", False),
        ("yes, it is", "yes", False),
        ("\"yes'", "yes", False),
        ('"', "", False),
        ("", "", True),
    ],
)
def test_exact_match(text, wanted, equal):
    assert matches_exactly(text, wanted) is equal


@each(
    ("wanted", "texts", "others"),
    [
        ("0", ["There are 0 of them"], ["There are 100 of them"]),
        ("5", ["5.", "(5)", "**5**", "it is +5"], ["10.05 in all", "on 05/06/2023", "it is −5", "it is .5", "5–6"]),
        ("1,204", ["1,204 km"], []),
        ("204", [], ["1,204 km"]),
        ("10:30", ["it opens 10:30"], []),
        ("green", ["red,green"], []),
        ("316", [], ["sale-316"]),
        ("sale-316", ["sale-316"], []),
        ("h", ["km/h"], []),
        ("N/A", ["It is N/A here"], []),
        ("jane", ["jane's"], []),
        ("$7.50", ["costs $7.50"], ["costs 7.50"]),
        ("main street", ["Main Street 5"], ["Main\nStreet"]),
        ("bo", ["Anna Lee and Bo"], []),
        ("grüße", ["grüße"], []),
        ("a", [], [""]),
        ("182.4", ["costs $182.40"], ["costs 182.45"]),
        ("6", ["- 6 degrees", "pages 5 - 6"], ["it is -6 degrees", "rows 2-6"]),
        ("-6", ["it is -6 degrees", "(-6.0)"], ["it is 6 degrees"]),
        ("149", ["from $35.00 to $149.00"], []),
        ("35", [], ["it is 35.05"]),
        ("3053.97", ["all of 3,053.97"], []),
        ("3,053.97", ["all of 3053.97"], []),
        ("189", ["order 000189"], ["order 0001890"]),
        ("000000189", ["order 189"], []),
        ("05", ["on 05/06/2023"], []),
        ("-5", ["it is −5", "it is $-5.00"], []),
        ("0.5", ["it is .5"], []),
        (".5", ["it is 0.50"], []),
        ("$1204", ["costs $1,204.00"], ["costs $1,205"]),
        ("$1,204.00", ["costs $1204"], []),
        ("05.0 km", ["5 km"], []),
        ("5 km", [], [".5 km", "-5 km"]),
        ("1.2.3", [], ["version 1.2.30"]),
        ("40.442", ["40.4424191, -79.9397388"], ["140.4424", "x40.4424", "40.442nd"]),
        ("-79.939", ["40.4424191,-79.9397388", "at -79.9397"], []),
        ("40.460", ["40.46076"], ["40.4610"]),
        ("suite 100", ["Suite 1000 or Suite 100"], ["Suite 1000", "suite 100.5"]),
        ("$1", ["costs $1.00, $2"], ["costs $10", "costs $1,204"]),
        ("$182.4", ["costs $182.40"], ["costs $182.45", "costs $182.405"]),
        ("$5", ["costs $5."], ["costs $5.05", "-$5"]),
        ("at 3", [], ["at 3:30"]),
        ("5 hours", ["4 - 5 hours"], ["4-5 hours", "4–5 hours", "1/5 hours"]),
        ("caf\xe9", ["cafe\u0301"], []),
        ("7 min", ["in 7 min"], ["17 min", "2.7 min"]),
        ("anna lee", ["Anna Lee7", "Anna LeeAnna Lee"], []),
        ("(40.1, 7", ["at (40.1, 7)"], []),
        ("65 |OR| 3", ["it is 3", "it is 65"], ["it is 653"]),
        ("65|OR|3", ["it is 3"], []),
        ("red |AND| blue", ["red and blue"], ["red"]),
        ("red |AND| blue |OR| green", ["green"], []),
        ("7 |OR| 8", [], ["65 |OR| 3"]),
    ],
)
def test_must_include(wanted, texts, others):
    """A part cuts no number; ` |OR| ` and ` |AND| ` make alternatives."""
    assert [text for text in texts if not contains_text(text, wanted)] == []
    assert [text for text in others if contains_text(text, wanted)] == []


@each(
    ("text", "comparison", "met"),
    [
        ("300", ">= 300", True),
        ("299", ">= 300", False),
        ("1,204", "== 1204", True),
        ("12,04", "== 1204", False),
        (" '7' ", "<8", True),
        ("-3", "< 0", True),
        ("8", "< 8", False),
        ("8", "> 8", False),
        ("8", "<= 8", True),
        ("5", "< 3 |OR| > 4", True),
        ("seven", "== 7", False),
        ("7.0", "== 7", False),
    ],
)
def test_required_values_are_compared_as_whole_numbers(text, comparison, met):
    assert meets_comparison(text, comparison) is met


@each("comparison", ["300", "!= 3", ">= many", "", "> 3 |OR| "])
def test_what_is_no_comparison_is_refused(comparison):
    with pytest.raises(ValueError, match="is no comparison"):
        meets_comparison("3", comparison)


@pytest.mark.parametrize(
    ("text", "rules", "good"),
    [
        ("red and blue", {"must_include": ["red", "blue"]}, True),
        ("red", {"must_include": ["red", "blue"]}, False),
        ("red", {"must_exclude": ["blue"]}, True),
        ("red and blue", {"must_exclude": ["blue"]}, False),
        ("bluebird", {"must_exclude": ["blue"]}, True),
        ("green", {"must_exclude": ["blue |OR| green"]}, False),
        ("the bluebird", {"one_of": ["red", "blue"]}, True),
        ("the dove", {"one_of": ["red", "blue"]}, False),
        ("12", {"required_values": ["> 10", "< 20"]}, True),
        ("25", {"required_values": ["> 10", "< 20"]}, False),
        ("red", {"exact_match": "red", "must_exclude": ["red"]}, False),
        ("red", {"exact_match": "red", "must_include": ["red"]}, True),
    ],
)
async def test_every_rule_has_to_hold(text, rules, good):
    assert await matches_expected(text, Expected(**rules), NOBODY) is good


async def test_a_judge_is_not_asked_where_the_answer_fails_without_it():
    judge = FakeJudge(True)
    for answer, expected, intent in (
        ("red", {"exact_match": "blue", "fuzzy_match": ["x"]}, ("", "")),
        ("I found nothing", {"fuzzy_match": "N/A"}, ("Find it", " ")),  # not achievable, without a reason
    ):
        assert not await matches_expected(answer, Expected(**expected), FuzzyContext(*intent, judge))
    assert judge.requests == []


async def test_not_achievable_by_its_answer_or_by_the_reason_that_a_judge_finds():
    for wanted in ("N/A", ["N/A"]):  # a list, as in tasks 51 and 91
        judge, expected = FakeJudge(True), Expected(fuzzy_match=wanted)
        asker = FuzzyContext("Find it", "there is no such shop", judge)
        assert await matches_expected("n/a", expected, asker)
        assert judge.requests == []
        assert await matches_expected("No shop has that name", expected, asker)
        assert judge.requests == [("unachievable", "Find it", "there is no such shop", "No shop has that name")]


async def test_a_judge_is_asked_once_for_the_whole_list_and_without_one_nothing_is_fuzzy():
    assert needs_judge(strings(fuzzy_match=["x"])) and not needs_judge(strings(must_include=["x"]))
    for says in (True, False):
        judge = FakeJudge(says)
        asker = FuzzyContext("What is it?", "", judge)
        assert await matches_expected("a red bird", Expected(fuzzy_match=["red", "bird"]), asker) is says
        assert judge.requests == [("same", "What is it?", "red, bird", "a red bird")]
    with pytest.raises(UsageError, match="needs a judge"):
        await matches_expected("red", Expected(fuzzy_match=["red"]), NOBODY)


@pytest.mark.parametrize(
    ("rules", "right"),
    [
        ({"must_include": ["987"]}, False),
        ({"must_include": ["1234.50"]}, True),
        ({"must_include": ["an item 98"]}, False),
        ({"must_include": ["an item 1234.5"]}, True),
    ],
)
async def test_a_long_page_does_not_hold_the_loop(rules, right):
    page = "<td>an item 1,234.5</td>\n" * 20_000
    verdicts = []

    async def match():
        verdicts.append(await matches_expected(page, Expected(**rules), NOBODY))

    assert await count_ticks(match()) > 5
    assert verdicts == [right]
