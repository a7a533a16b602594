import pytest

from tests.environments.webarena.webarena_pages import FORUM, SHOP, FakeJudge, FakePages, pages, strings, target, url
from tests.tables import each
from webgym_cli.config.load import load
from webgym_cli.environments.webarena.environment import WebArenaPool
from webgym_cli.environments.webarena.evaluation import check_evaluation, grade, url_matches
from webgym_cli.environments.webarena.locators import HelperName
from webgym_cli.records.webarena import EvalType, Evaluation, UrlRule

URL, STRING, HTML = EvalType.URL_MATCH, EvalType.STRING_MATCH, EvalType.PROGRAM_HTML
VALUE = "document.querySelector('#q').value"
RUN = f"() => ({VALUE})"
CART = f"{SHOP}/cart"


async def scored(evaluation, answer="", at=None, judge=None):
    return await grade(evaluation, intent="Do it", answer=answer, pages=at or FakePages(), judge=judge)


async def rewarded(*targets, at=None, judge=None):
    return float(all((await scored(pages(*targets), at=at, judge=judge)).values()))


async def test_an_answer_or_the_last_address():
    for answer, reward in (("It is 5", 1.0), ("It is 50", 0.0), ("", 0.0), (None, 0.0)):
        assert await scored(strings(must_include=["5"]), answer) == {STRING: reward}
    for rules in ({"must_exclude": ["5"]}, {"exact_match": ""}, {"fuzzy_match": "x"}):  # who was stopped
        assert await scored(strings(**rules), None, judge=FakeJudge(True)) == {STRING: 0.0}
    for page, reward in (("sales/7", 1.0), ("cart", 0.0)):
        assert await scored(url(f"{SHOP}/sales"), at=FakePages(f"{SHOP}/{page}")) == {URL: reward}


@pytest.mark.parametrize(
    ("answer", "address", "html", "parts"),
    [
        ("yes", SHOP, "hat", {URL: 1.0, STRING: 1.0, HTML: 1.0}),
        ("yes", SHOP, "cap", {URL: 1.0, STRING: 1.0, HTML: 0.0}),
        ("no", SHOP, "hat", {URL: 1.0, STRING: 0.0}),
        ("yes", FORUM, "hat", {URL: 0.0}),
    ],
)
async def test_the_score_is_the_product_and_ends_at_the_first_zero(answer, address, html, parts):
    evaluation = Evaluation(
        eval_types=["program_html", "string_match", "url_match"],
        reference_answers={"exact_match": "yes", "must_include": None},
        reference_url=SHOP,
        url_note="GOLD in PRED",
        program_html=[target(CART, must_include=["hat"])],
    )
    assert await scored(evaluation, answer, FakePages(f"{address}/x", {CART: html})) == parts


DUMMY = {
    "eval_types": ["string_match"],
    "reference_answers": {"exact_match": "N/A"},
    "reference_url": "",
    "program_html": [],
    "string_note": "",
    "reference_answer_raw_annotation": "",
}


async def test_a_generated_task_has_no_score_even_for_the_dummys_own_answer():
    for evaluation in (None, Evaluation(**DUMMY)):
        for answer in ("N/A", "n/a", "5", "", None):
            assert await scored(evaluation, answer) is None
    for real in ({"string_note": "There is none"}, {"reference_answer_raw_annotation": "N/A"}):  # can't be done
        evaluation = Evaluation(**{**DUMMY, **real})
        assert [await scored(evaluation, answer) for answer in ("N/A", "5")] == [{STRING: 1.0}, {STRING: 0.0}]


@pytest.mark.parametrize(
    ("wanted", "right", "wrong"),
    [
        ("red hat |OR| blue hat", "<b>Blue hat</b>", "<b>Green hat</b>"),
        ("red hat |AND| blue hat", "<b>Blue hat</b><b>red hat</b>", "<b>Blue hat</b>"),
    ],
)
async def test_alternatives_in_a_page_are_alternatives_of_which_all_texts_count(wanted, right, wrong):
    """VisualAgentBench looked for the text ` |OR| ` itself (task 103)."""
    for html, reward in ((right, 1.0), (wrong, 0.0)):
        assert await rewarded(target(CART, must_include=[wanted]), at=FakePages(contents={CART: html})) == reward


async def test_entities_of_a_page_and_of_an_element_are_characters():
    at = FakePages(contents={CART: "<b>Salt &amp; pepper</b>"}, values={RUN: "Salt &amp; pepper"})
    assert await rewarded(target(CART, must_include=["salt & pepper"]), at=at) == 1.0
    assert await rewarded(target("last", VALUE, exact_match="salt & pepper"), at=at) == 1.0


@pytest.mark.parametrize(
    ("value", "wanted"), [("Red", "red"), (5, "5"), (5.0, "5"), (0.5, "0.5"), (True, "true"), ("", ""), ([1], "[1]")]
)
async def test_what_a_script_gives_is_written_as_javascript_does(value, wanted):
    assert await rewarded(target("last", VALUE, exact_match=wanted), at=FakePages(values={RUN: value})) == 1.0


@pytest.mark.parametrize("values", [{}, {RUN: None}], ids=["fails", "null"])
@pytest.mark.parametrize("rules", [{"exact_match": ""}, {"exact_match": "None"}, {"must_exclude": ["x"]}])
async def test_a_page_without_the_element_scores_0_whatever_the_rule(values, rules):
    """A failed script was an empty text, and null the word None: both could score 1."""
    assert await rewarded(target("last", VALUE, **rules), at=FakePages(values=values)) == 0.0


async def test_the_last_page_is_looked_at_before_others_are_opened():
    """What was typed and never sent would be gone; and `last` would be another page."""
    at = FakePages(f"{SHOP}/form", {CART: "hat", f"{SHOP}/form": "typed"}, {RUN: "typed"})
    targets = [target(CART, must_include=["hat"]), target("last", VALUE, exact_match="typed")]
    assert await rewarded(*targets, at=at) == 1.0
    assert at.done == [f"run {RUN}", f"open {CART}"]


async def test_a_helpers_last_address_is_the_one_where_the_episode_ended():
    post = f"{FORUM}/f/books/12/"
    at = FakePages(f"{post}title/-/comment/3", {CART: "hat", post: "thanks"})
    targets = [
        target(CART, must_include=["hat"]),
        target("func:reddit_get_post_url('__last_url__')", must_include=["thanks"]),
    ]
    assert await rewarded(*targets, at=at) == 1.0
    assert at.done == [f"open {CART}", f"open {post}"]


async def test_a_page_that_belongs_to_no_post_is_looked_at_itself_and_a_helper_that_finds_nothing_scores_0():
    at = FakePages(f"{FORUM}/f/books")
    assert await rewarded(target("func:shopping_get_latest_order_url()", must_exclude=["x"]), at=at) == 0.0
    assert at.done == []
    at.contents[at.at] = "thanks"
    assert await rewarded(target("func:reddit_get_post_url('__last_url__')", must_include=["thanks"]), at=at) == 1.0


async def test_helpers_ask_the_site():
    order = f"{SHOP}/order/7"
    at = FakePages(
        contents={order: "paid"},
        answers={(HelperName.LATEST_ORDER, None): order, (HelperName.MEMBER_ROLE, "yjlou"): "Developer"},
    )
    role = target("last", "func:gitlab_get_project_memeber_role(__page__, 'yjlou')", exact_match="developer")
    latest = target("func:shopping_get_latest_order_url()", must_include=["paid"])
    assert await rewarded(role, latest, at=at) == 1.0
    nobody = target("last", "func:gitlab_get_project_memeber_role(__page__, 'koush')", exact_match="developer")
    assert await rewarded(nobody, at=at) == 0.0


async def test_preparations_run_first_and_may_fail():
    opened = "() => { document.body.click() }"
    for values in ({RUN: "a"}, {RUN: "a", opened: None}):
        at = FakePages(values=values)
        assert await rewarded(target("last", VALUE, ["document.body.click()"], exact_match="a"), at=at) == 1.0
        assert at.done == [f"run {opened}", f"run {RUN}"]


async def test_a_judge_reads_what_a_page_holds():
    judge, at = FakeJudge(True), FakePages(values={RUN: "Please refund it"})
    assert await rewarded(target("last", VALUE, fuzzy_match=["refund", "broke"]), at=at, judge=judge) == 1.0
    assert judge.requests == [("same", "Do it", "refund, broke", "Please refund it")]


UNKNOWN = {
    "a locator": (pages(target("last", "eval(x)", must_include="x")), "program_html.0: locator: 'eval"),
    "a second url": (
        pages(target(CART, must_include="x"), target("func:f()", must_include="x")),
        r"program_html.1: 'func:f\(\)': there is no such helper",
    ),
    "a comparison": (strings(required_values=["about 5"]), "reference_answers.required_values: 'about 5' is no"),
    "a comparison in a page": (
        pages(target(CART, required_values=["~5"])),
        "program_html.0.required_contents.required_values: '~5'",
    ),
}


@pytest.mark.parametrize(("evaluation", "reason"), UNKNOWN.values(), ids=UNKNOWN)
async def test_an_unknown_form_is_an_error_before_anything_is_looked_at(evaluation, reason):
    at = FakePages()
    with pytest.raises(ValueError, match=reason):
        await scored(evaluation, "5", at)
    assert at.done == []


def test_places_that_no_part_looks_at_need_not_be_known():
    check_evaluation(Evaluation(**{**DUMMY, "program_html": [target("last", "eval(x)", must_include="x")]}))


LAB = "http://lab.test:8023"
ISSUE = f"{LAB}/a/b/-/issues/8"

EXACT = [
    (ISSUE, ISSUE, True),
    (f"{ISSUE}/", ISSUE, True),
    (ISSUE, f"{ISSUE}/", True),
    (f"{ISSUE}9", ISSUE, False),
    (f"{ISSUE}?x=1", ISSUE, False),
    (f"{ISSUE}?b=2&a=1", f"{ISSUE}?a=1&b=2", True),
    (f"{ISSUE}#note_1", ISSUE, False),
    (ISSUE, f"{LAB}/x |OR| {ISSUE}", True),
    ("http://localhost:8023/a", "http://127.0.0.1:8023/a", True),
    ("http://lab.test/a", "http://lab.test:80/a", True),
    ("http://lab.test/a", "http://lab.test:8023/a", False),
]

LEADS = [
    ("https://lab.test:8023/a", f"{LAB}/a", True),
    ("https://lab.test/a", "http://lab.test:80/a", True),
    ("https://lab.test/a", "http://lab.test:8023/a", False),
    (f"{ISSUE};jsessionid=1A", ISSUE, True),
    (f"{ISSUE}//", ISSUE, True),
    (f"{LAB}/issues?state=opened/", f"{LAB}/issues?state=opened", True),
    (f"{LAB}/issues?state=opened", f"{LAB}/issues?state=opened&label=", True),
    (f"{LAB}/issues?label=x", f"{LAB}/issues?state=opened&label=", False),
    (ISSUE, ISSUE, True),
    (f"{ISSUE}/designs", ISSUE, True),
    (f"{ISSUE}?x=1#note_1", ISSUE, True),
    (f"{LAB}/a", LAB, True),
    (LAB, f"{LAB}/a", False),
    (f"{LAB}/issues/?state=opened&sort=created_asc&page=2", f"{LAB}/issues?sort=created_asc&state=opened", True),
    (f"{LAB}/issues/?state=opened", f"{LAB}/issues/?sort=created_asc&state=opened", False),
    (f"{LAB}/issues/?state=closed", f"{LAB}/issues/?state=opened", False),
    (f"{LAB}/issues/?label_name[]=bug", f"{LAB}/issues/?label_name%5B%5D=bug", True),
    (f"{LAB}/i?l=a&l=b", f"{LAB}/i?l=b", True),
    (f"{LAB}/i?l=b", f"{LAB}/i?l=a&l=b", False),
    (f"{LAB}/search?q=usb+wifi", f"{LAB}/search?q=usb%20wifi", True),
    (f"{LAB}/f/nyc", f"{LAB}/f/books |OR| {LAB}/f/nyc", True),
    (f"{LAB}/f/funny", f"{LAB}/f/books |OR| {LAB}/f/nyc", False),
    ("http://other.test/?to=http://lab.test:8023/f/nyc", f"{LAB}/f/nyc", False),
    ("http://localhost:8023/f/nyc/7", "http://127.0.0.1:8023/f/nyc", True),
    # another page whose name begins alike; a host is no word
    (f"{LAB}/f/bookshelf", f"{LAB}/f/books", False),
    (f"{ISSUE}1", ISSUE, False),
    (f"{LAB}/wiki/127.0.0.1", f"{LAB}/wiki/localhost", False),
    ("about:blank", LAB, False),
    ("http://[half", LAB, False),
    ("http://lab.test:99999/", LAB, False),
]


@each(("address", "wanted", "good"), EXACT)
def test_an_address_is_the_wanted_one(address, wanted, good):
    assert url_matches(address, wanted, UrlRule.EXACT) is good


@each(("address", "wanted", "good"), LEADS)
def test_an_address_lies_at_or_below_the_wanted_one(address, wanted, good):
    assert url_matches(address, wanted, UrlRule.GOLD_IN_PRED) is good


@pytest.mark.parametrize(("address", "has_judge"), [("", False), ("http://127.0.0.1:9/v1", True)])
def test_a_pool_has_a_judge_if_settings_name_one(address, has_judge):
    assert (WebArenaPool(load(overrides=[f"judge.base_url={address}"])).judge is not None) is has_judge
