"""A user's expert: what it yields becomes actions on what the policy sees, and what it raises names its line."""

import asyncio
import re
from unittest import mock

import pytest

from webgym_cli.environments.browser.actions import point_at_elements
from webgym_cli.environments.browser.observe import ElementSnapshot
from webgym_cli.environments.sites import expert
from webgym_cli.environments.sites.site_expert import EXPERTS, ExpertRun, SiteExpert, make_expert, require_site_experts
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element

URL = "http://desk/"


@pytest.fixture(autouse=True)
def _no_experts():
    with mock.patch.dict(EXPERTS.registered, clear=True):
        yield


def scene(**names: str) -> list[Element]:
    return [Element(id=at, role=role, name=name, box=(0, 0, 9, 9)) for at, (name, role) in enumerate(names.items())]


def run(function, **given) -> ExpertRun:
    return ExpertRun(SiteExpert.of(function, "desk"), given)


class Session:
    url, dialogs = URL, mock.Mock(describe=str)

    async def evaluate(self, script):
        return "Tickets"


def act(episode: ExpertRun, elements: list[Element]):
    return asyncio.run(episode.act(Session(), elements))


def test_what_an_expert_yields_becomes_actions_and_its_end_an_answer():
    def work(page, title, seed):
        yield page.type("Search", title)
        yield from page.click("Find")
        yield page.select("Status", "closed")
        yield page.type("Due", "2027-02-03")
        result = yield page.read(r"^Ticket (?P<number>\d+)")
        yield page.press("Control", "a")
        return f"{result['number']} of {seed}"

    elements = scene(Search="searchbox", Find="button", Status="combobox", Due="date")
    episode = run(work, title="Chair", seed=3)
    actions = [episode.next(URL, elements, "A list\nTicket 7") for _ in range(6)]
    assert [(one.name.value, one.element_id, one.text) for one in actions] == [
        ("type", 0, "Chair"),
        ("click", 1, None),
        ("select_option", 2, "closed"),
        ("type", 3, "2027-02-03"),
        ("key", None, None),
        ("answer", None, "7 of 3"),
    ]
    with pytest.raises(LookupError, match="already given"):
        episode.next(URL, elements, "Ticket 7")


def test_an_expert_without_a_value_says_that_it_is_done():
    def work(page):
        yield page.click("Find", "button")

    episode, elements = run(work), scene(Search="link", Find="button")
    assert [episode.next(URL, elements, "x").text for _ in range(2)] == [None, "Done."]


def test_an_expert_may_catch_that_something_is_missing():
    def work(page):
        try:
            yield page.click("Delete")
        except LookupError:
            return "no button"

    episode = run(work)
    *scrolls, last = [episode.next(URL, scene(Find="button"), "x") for _ in range(5)]  # nothing moves
    assert [one.direction for one in scrolls] == ["down", "up", "down", "up"] and last.text == "no button"


def test_a_long_page_is_looked_through_before_an_element_is_missed():
    def work(page):
        yield page.click("Delete")

    episode = run(work)
    moved = [scene(**{f"at {place}": "button"}) for place in range(12)]
    directions = [episode.next(URL, elements, "x").direction for elements in moved]
    assert directions == ["down"] * 4 + ["up"] * 4 + ["down"] * 4
    assert episode.next(URL, scene(Delete="button"), "x").name == "click"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda page: "click", "TypeError: a str is no action of page"),
        (lambda page: None, "TypeError: a NoneType is no action of page"),
        (lambda page: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_an_expert_does_wrong_is_a_failure_at_its_line(step, words):
    def work(page):
        yield step(page)

    line = work.__code__.co_firstlineno + 1
    with pytest.raises(BoundaryError, match=rf"the expert desk failed: {words}") as caught:
        act(run(work), scene(Find="button"))
    assert caught.value.kind is FailureKind.ENVIRONMENT_ERROR
    assert f"(test_site_expert.py:{line})" in str(caught.value) or "ZeroDivisionError" in words


def assert_missed(episode: ExpertRun, shown: list[Element], words: str) -> None:
    """The page is looked through before an element is missed."""
    for _ in range(4):
        act(episode, shown)
    with pytest.raises(BoundaryError, match=words):
        act(episode, shown)


def test_a_missing_element_is_reported_with_those_that_are_there_the_most_alike_first():
    def work(page):
        yield page.click("Delete", "link")

    words = r"'Delete', .*'Deleted', .*'Home', .*'Delete_it', .*'Find' \(test_"
    assert_missed(run(work), scene(Delete_it="button", Find="button", Deleted="link", Home="link"), words)


def test_a_missing_element_is_reported_with_those_that_scrolling_passed():
    def work(page):
        yield page.type("Tags", "urgent")

    episode = run(work)
    with pytest.raises(BoundaryError, match=r"'Select tags'.*'Number'"):
        for field in ("Number", "Select tags", *["Number"] * 20):
            act(episode, scene(**{field: "textbox"}))


def test_of_elements_that_are_alike_the_expert_names_one_by_its_number():
    def work(page):
        yield page.click("Edit", "link", nth=1)
        yield page.type("Stock", "7", nth=2)

    names = [("link", "Edit"), ("textbox", "Stock")] * 2
    rows = [Element(id=at, role=role, name=name, box=(0, 0, 9, 9)) for at, (role, name) in enumerate(names)]
    episode = run(work)
    assert act(episode, rows).element_id == 2
    assert_missed(episode, rows, "'Stock' as number 2, of 2 in sight")


@pytest.mark.parametrize(
    ("roles", "nth", "typed"),
    [
        (("slider", "textbox"), 0, 1),
        (("textbox", "slider"), 0, 0),
        (("slider", "spinbutton", "date", "textbox"), 1, 3),
        (("button", "slider"), 0, 1),
        (("date", "color"), 1, 1),
    ],
)
def test_text_is_typed_into_the_text_field_of_a_name_if_there_is_one(roles, nth, typed):
    def work(page):
        yield page.type("Price", "70", nth=nth)

    fields = [Element(id=at, role=role, name="Price", box=(0, 0, 9, 9)) for at, role in enumerate(roles)]
    assert act(run(work), fields).element_id == typed


def test_a_regular_expression_finds_a_part_of_a_name():
    def work(page):
        yield page.click(re.compile("is (broken|slow)"), "link")
        yield page.click(re.compile("nois"))

    shown, episode = scene(Find="button", **{"is slow": "button", "#4: printer is slow (new)": "link"}), run(work)
    assert act(episode, shown).element_id == 2
    assert_missed(episode, shown, r"called .*'nois'")


def test_a_refused_action_is_raised_where_it_was_yielded():
    def work(page):
        try:
            yield page.click("Find", "button")
        except LookupError as error:
            yield page.answer(str(error))

    def careless(page):
        yield page.scroll()
        yield page.switch_tab(9)

    find = scene(Find="button")
    episode = run(work)
    episode.next(URL, find, "x")
    assert episode.next(URL, find, "x", "it is covered").text == "click was refused: it is covered"
    episode = run(careless)
    episode.next(URL, find, "x")
    assert episode.next(URL, find, "x", "nothing moved").tab == 9
    with pytest.raises(LookupError, match=r"switch_tab was refused: there are 2"):
        episode.next(URL, find, "x", "there are 2")


def test_an_expert_points_drags_and_clicks_in_other_ways():
    def work(page):
        yield page.click("Find", clicks=2, button="right")
        yield page.hover("Menu")
        yield page.drag("Menu", "Find")
        yield page.drag("Find", "Find", position=(0, 500), to_position=(1000, 500))

    episode, seen = run(work), scene(Find="button", Menu="link")
    double, hover, drag, within = (episode.next(URL, seen, "x") for _ in range(4))
    assert (double.name, double.element_id, double.clicks, double.button) == ("click", 0, 2, "right")
    assert (hover.name, hover.element_id) == ("hover", 1)
    assert (drag.name, drag.element_id, drag.to_element_id) == ("drag", 1, 0)
    listed = [ElementSnapshot(one, (4.0, 4.0)) for one in seen]
    points = [point_at_elements(one, listed, (100, 50)) for one in (drag, within)]
    assert [(one.coordinate, one.to_coordinate) for one in points] == [((40, 80), (40, 80)), ((0, 90), (80, 90))]
    assert {one.element_id for one in points} == {one.to_position for one in points} == {None}


def test_an_invalid_action_or_a_task_without_an_argument_is_explained_in_one_line():
    def hasty(page):
        yield page.wait(-5)

    def work(page, title):
        yield page.click(title)

    with pytest.raises(BoundaryError, match=r"ValidationError: seconds: .* \(test_site_expert.py:\d+\)$"):
        act(run(hasty), scene(Find="button"))
    with pytest.raises(BoundaryError, match=r"desk .*TypeError: .*'title'"):
        act(run(work), scene(Find="button"))


def test_an_expert_that_hangs_ends_at_its_deadline():
    def work(page):
        while True:
            if page is None:
                yield

    episode = ExpertRun(SiteExpert.of(work, "desk", timeout=0.05), {})
    with pytest.raises(BoundaryError, match=r"more than 0.05 s"):
        act(episode, scene(Find="button"))


def test_only_tasks_with_an_expert_can_be_demonstrated():
    task = Task(id="a", site="desk", extra={"title": "Chair"})
    assert make_expert(task, 0, 1.0) is None
    with pytest.raises(UsageError, match="no expert for the site desk; loaded: none"):
        require_site_experts([task])

    @expert("desk")
    def work(page, title):
        yield page.click(title)

    require_site_experts([task])
    assert make_expert(task, 0, 1.0).next(URL, scene(Chair="link"), "x").element_id == 0
    with pytest.raises(UsageError, match="desk needs title"):
        require_site_experts([Task(id="b", site="desk")])
    with pytest.raises(UsageError, match="loaded: desk"):
        require_site_experts([Task(id="c", site="shop")])


def test_an_expert_is_a_generator_function_with_a_site():
    with pytest.raises(UsageError, match="no generator function"):
        expert("desk")(lambda page: page.click("Find"))
    with pytest.raises(UsageError, match="needs the site"):
        expert(lambda page: None)
