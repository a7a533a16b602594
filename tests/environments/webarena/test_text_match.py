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
    ("text", "wanted", "inside"),
    [
        ("There are 100 of them", "0", False),
        ("There are 0 of them", "0", True),
        ("10.05 in all", "5", False),
        ("5.", "5", True),
        ("(5)", "5", True),
        ("**5**", "5", True),
        ("1,204 km", "1,204", True),
        ("1,204 km", "204", False),
        ("it opens 10:30", "10:30", True),
        ("red,green", "green", True),
        ("sale-316", "316", False),
        ("sale-316", "sale-316", True),
        ("km/h", "h", True),
        ("It is N/A here", "N/A", True),
        ("jane's", "jane", True),
        ("costs $7.50", "$7.50", True),
        ("costs 7.50", "$7.50", False),
        ("Main Street 5", "main street", True),
        ("Main\nStreet", "main street", False),
        ("Anna Lee and Bo", "bo", True),
        ("grüße", "grüße", True),
        ("", "a", False),
        ("costs $182.40", "182.4", True),
        ("costs 182.45", "182.4", False),
        ("it is -6 degrees", "6", False),
        ("it is -6 degrees", "-6", True),
        ("(-6.0)", "-6", True),
        ("it is 6 degrees", "-6", False),
        ("- 6 degrees", "6", True),
        ("rows 2-6", "6", False),
        ("pages 5 - 6", "6", True),
        ("from $35.00 to $149.00", "149", True),
        ("it is 35.05", "35", False),
        ("all of 3,053.97", "3053.97", True),
        ("all of 3053.97", "3,053.97", True),
        ("order 000189", "189", True),
        ("order 189", "000000189", True),
        ("order 0001890", "189", False),
        ("on 05/06/2023", "5", False),
        ("on 05/06/2023", "05", True),
        ("it is +5", "5", True),
        ("it is −5", "-5", True),
        ("it is −5", "5", False),
        ("it is .5", "5", False),
        ("it is .5", "0.5", True),
        ("it is 0.50", ".5", True),
        ("it is $-5.00", "-5", True),
        ("costs $1,204.00", "$1204", True),
        ("costs $1204", "$1,204.00", True),
        ("costs $1,205", "$1204", False),
        ("5 km", "05.0 km", True),
        (".5 km", "5 km", False),
        ("-5 km", "5 km", False),
        ("version 1.2.30", "1.2.3", False),
        ("40.4424191, -79.9397388", "40.442", True),
        ("40.4424191,-79.9397388", "-79.939", True),
        ("40.46076", "40.460", True),
        ("40.4610", "40.460", False),
        ("140.4424", "40.442", False),
        ("x40.4424", "40.442", False),
        ("40.442nd", "40.442", False),
        # a part cuts no number
        ("Suite 1000", "suite 100", False),
        ("Suite 1000 or Suite 100", "suite 100", True),
        ("costs $10", "$1", False),
        ("costs $1,204", "$1", False),
        ("costs $1.00, $2", "$1", True),
        ("costs $182.40", "$182.4", True),
        ("costs $182.45", "$182.4", False),
        ("costs $182.405", "$182.4", False),
        ("costs $5.05", "$5", False),
        ("costs $5.", "$5", True),
        ("-$5", "$5", False),
        ("suite 100.5", "suite 100", False),
        ("at 3:30", "at 3", False),
        ("4-5 hours", "5 hours", False),
        ("4–5 hours", "5 hours", False),
        ("4 - 5 hours", "5 hours", True),
        ("1/5 hours", "5 hours", False),
        ("5–6", "5", False),
        ("cafe\u0301", "caf\xe9", True),
        ("17 min", "7 min", False),
        ("2.7 min", "7 min", False),
        ("in 7 min", "7 min", True),
        ("Anna Lee7", "anna lee", True),
        ("Anna LeeAnna Lee", "anna lee", True),
        ("at -79.9397", "-79.939", True),
        ("at (40.1, 7)", "(40.1, 7", True),
        # alternatives
        ("it is 3", "65 |OR| 3", True),
        ("it is 65", "65 |OR| 3", True),
        ("it is 653", "65 |OR| 3", False),
        ("it is 3", "65|OR|3", True),
        ("red and blue", "red |AND| blue", True),
        ("red", "red |AND| blue", False),
        ("green", "red |AND| blue |OR| green", True),
        ("65 |OR| 3", "7 |OR| 8", False),
    ],
)
def test_must_include(text, wanted, inside):
    assert contains_text(text, wanted) is inside


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


@pytest.mark.parametrize("comparison", ["300", "!= 3", ">= many", "", "> 3 |OR| "])
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


@pytest.mark.parametrize("says", [True, False])
async def test_a_judge_is_asked_once_for_the_whole_list(says):
    judge = FakeJudge(says)
    asker = FuzzyContext("What is it?", "", judge)
    assert await matches_expected("a red bird", Expected(fuzzy_match=["red", "bird"]), asker) is says
    assert judge.requests == [("same", "What is it?", "red, bird", "a red bird")]


@pytest.mark.parametrize(
    ("answer", "expected", "intent"),
    [
        pytest.param("red", {"exact_match": "blue", "fuzzy_match": ["x"]}, ("", ""), id="another rule fails"),
        pytest.param("I found nothing", {"fuzzy_match": "N/A"}, ("Find it", " "), id="not achievable without a reason"),
    ],
)
async def test_a_judge_is_not_asked_where_the_answer_fails_without_it(answer, expected, intent):
    judge = FakeJudge(True)
    assert not await matches_expected(answer, Expected(**expected), FuzzyContext(*intent, judge))
    assert judge.requests == []


@pytest.mark.parametrize("wanted", ["N/A", ["N/A"]], ids=["a text", "a list, as in tasks 51 and 91"])
async def test_not_achievable_by_its_answer_or_by_the_reason_that_a_judge_finds(wanted):
    judge, expected = FakeJudge(True), Expected(fuzzy_match=wanted)
    asker = FuzzyContext("Find it", "there is no such shop", judge)
    assert await matches_expected("n/a", expected, asker)
    assert judge.requests == []
    assert await matches_expected("No shop has that name", expected, asker)
    assert judge.requests == [("unachievable", "Find it", "there is no such shop", "No shop has that name")]


async def test_without_a_judge_nothing_is_fuzzy():
    with pytest.raises(UsageError, match="needs a judge"):
        await matches_expected("red", Expected(fuzzy_match=["red"]), NOBODY)


def test_which_tasks_need_a_judge():
    assert needs_judge(strings(fuzzy_match=["x"]))
    assert not needs_judge(strings(must_include=["x"]))


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
