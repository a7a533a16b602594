import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import each
from tests.tasks.lines import FACTS, GROUPS, webgym
from webgym_cli.environments.miniwob.pages import list_pages
from webgym_cli.records.task import Task
from webgym_cli.tasks.format import BadTaskError, parse_task

WEB = {"id": "a", "instruction": "Find it.", "start_url": "https://a.com/"}


def read(value):
    return parse_task(json.dumps(value).encode())


def test_a_line_of_webgym():
    task = read(webgym())
    assert task == Task(
        id="insta-0",
        instruction="Find the cheapest shoe, size 0.",
        start_url="https://www.shop0.co.uk",
        environment="web",
        difficulty=2,
        rubric=(
            "[Group G1: The shoe] Names it",
            "[Group G1: The shoe] Names its colour",
            "[Group 2: The price] Names it in euros",
        ),
        reference_answer=None,
        extra={
            "benchmark_name": "InSTA-v3",
            "domain": "Shopping",
            "subdomain": "Fashion",
            "distribution": "iid",
            "attempt_level": 0,
            "evaluator_reference": GROUPS,
        },
    )


@pytest.mark.parametrize(
    ("rubric", "facts", "kept"),
    [
        (None, (), False),
        ("", (), False),
        ([], (), False),
        ("Names it", ("Names it",), False),
        (["Names it", "Names the price"], ("Names it", "Names the price"), False),
        (FACTS, ("Names the shoe", "Names the price"), True),
        ('["Names it", "Names the price"]', ("Names it", "Names the price"), False),  # as a table holds a list
        ("['Names it']", ("Names it",), False),
        ("[Names it", ("[Names it",), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["evaluator_reference", "rubric"])
def test_a_rubric_in_each_shape(name, rubric, facts, kept):
    line = webgym()
    del line["evaluator_reference"]
    task = read({**line, name: rubric})
    assert task.rubric == facts
    assert task.extra.get("evaluator_reference") == (rubric if kept else None)


@each(
    ("fields", "answer", "kept"),
    [
        ({"definite_answer": "42"}, "42", {}),
        ({"definite_answer": None}, None, {}),
        ({"definite_answer": ""}, None, {}),
        ({"reference_answer": "42"}, "42", {}),
        ({"reference_answer": None, "definite_answer": "42"}, "42", {}),
        ({"reference_answer": "41", "definite_answer": "42"}, "41", {"definite_answer": "42"}),
    ],
)
def test_the_reference_answer_under_both_names(fields, answer, kept):
    task = read({**WEB, **fields})
    assert (task.reference_answer, task.extra) == (answer, kept)


@each(
    ("fields", "read_as"),
    [
        ({"id": 5}, {"id": "5"}),
        ({"id": None}, {"id": "83e36cdc6c315013"}),
        ({"difficulty": "Hard"}, {"difficulty": 7}),
        ({"reference_answer": ["a", 42]}, {"reference_answer": "a|OR|42"}),
        ({"reference_answer": 4.5}, {"reference_answer": "4.5"}),
        ({"max_steps": "12"}, {"extra": {"max_steps": 12}}),
    ],
)
def test_fields_as_other_benchmarks_write_them(fields, read_as):
    assert read({**WEB, **fields}).model_dump(include=read_as) == read_as


@each(
    ("website", "address"),
    [
        ("example.com", "https://example.com"),
        (" www.example.com/shop?x=1 ", "https://www.example.com/shop?x=1"),
        ("//example.com", "https://example.com"),
        ("localhost:8080/a", "https://localhost:8080/a"),
        ("http://example.com", "http://example.com"),
        ("HTTPS://Example.com/", "HTTPS://Example.com/"),
        ("https://bücher.example/ä b", "https://bücher.example/ä b"),
        ("http://[::1]:80/", "http://[::1]:80/"),
    ],
)
def test_a_bare_domain_gets_https(website, address):
    assert read(webgym(website=website)).start_url == address
    assert read({**WEB, "environment": "web", "start_url": website}).start_url == address


@each(("facts", "difficulty"), [(None, 1), ([], 1), ("a", 1), (["a", "b", "c", "d"], 4), (GROUPS, 3), (FACTS, 2)])
def test_a_missing_difficulty_is_the_number_of_facts(facts, difficulty):
    for missing in ({"difficulty": None}, {}):
        line = webgym(evaluator_reference=facts)
        del line["difficulty"]
        assert read({**line, **missing}).difficulty == difficulty


def test_ids_of_webgym():
    assert read(webgym(task_id=17)).id == "17"
    line = webgym()
    del line["task_id"]
    first, again, other = read(line), read(line), read({**line, "website": "b.com"})
    assert len(first.id) == 16
    assert first.id == again.id != other.id


def test_unknown_fields_are_kept_and_our_names_win():
    task = read({**WEB, "task_name": "theirs", "topic": "x", "extra": {"y": 1, "topic": "inner"}})
    assert (task.instruction, task.extra) == ("Find it.", {"task_name": "theirs", "topic": "x", "y": 1})
    task = read({**WEB, "site": "desk", "role": "agent", "check": "closed"})
    assert (task.site, task.role, task.check, task.extra) == ("desk", "agent", "closed", {})


@each(
    ("line", "environment"),
    [
        (WEB, "web"),
        (webgym(), "web"),
        ({"id": "click-test"}, "miniwob"),
        ({"id": "a", "start_url": "click-test.html"}, "miniwob"),
        ({**WEB, "environment": "webarena"}, "webarena"),
    ],
)
def test_the_environment_that_is_not_named(line, environment):
    assert read(line).environment == environment


def test_tasks_of_the_fixture_sites_are_known_by_id(monkeypatch):
    from webgym_cli.environments.fixture_sites import tasks

    monkeypatch.setattr(tasks, "load_site_tasks", lambda: {"shop-cart": None})
    line = {"id": "shop-cart", "start_url": "http://shop.test/", "environment": "sites"}
    assert read(line).environment == "sites"
    with pytest.raises(BadTaskError, match="no task 'shop-tour'"):
        read({**line, "id": "shop-tour"})


@each(
    ("field", "values", "reply"),
    [
        ("task_name", (None, "  "), "a task on the web needs an instruction"),
        ("task_name", (5,), "Input should be a valid string"),
        ("website", (None, ""), "a task on the web needs the address"),
        ("website", (["a.com"],), "Input should be a valid string"),
        (
            "website",
            ("ftp://a.com", "file:///etc", "javascript:a(1)", "mailto:a@b.com"),
            "'{}' is neither http nor https",
        ),
        ("website", ("https://", "https://a.com:port/", "http://[::1/"), "'{}' is not the address"),
        ("website", ("/tickets", "no domain"), "'https://{}' is not the address"),
        ("difficulty", (0,), "Input should be greater than or equal to 1"),
        ("difficulty", ("extreme", 1.5), "Input should be a valid integer"),
        ("difficulty", (True,), "Input should be a number, not true"),
        ("max_steps", (0, -1, True, "many", 1.5), ""),
        ("evaluator_reference", (5,), "neither"),
        ("definite_answer", ({"a": 42},), "Input should be a valid string"),
        ("task_id", ("",), "String should have at least 1 character"),
        ("environment", ("mars", ["web"]), "there is no environment"),
        ("extra", ([1],), "it should be a table"),
        ("canary", ("x",), ""),
    ],
)
def test_what_is_no_task_names_the_field_as_it_is_written(field, values, reply):
    for value in values:
        with pytest.raises(BadTaskError) as caught:
            read(webgym(**{field: value}))
        assert str(caught.value).startswith(f"{field}: {reply.format(value)}"), value


@each(
    ("change", "place"),
    [
        ({"evaluator_reference": [GROUPS[0], {"facts": [1]}]}, "evaluator_reference.1.facts.0"),
        ({"extra": {"canary": "x"}}, "canary"),
    ],
)
def test_what_is_no_task_names_the_place_within_a_field(change, place):
    with pytest.raises(BadTaskError, match=f"^{place}: "):
        read(webgym(**change))


@each(
    "line", [b"{", b'{"a": 1} x', b"\xff\xfe", b'{"id": "\\ud800"}', b"[" * 100_000, b'{"difficulty": 1' + b"0" * 5000]
)
def test_what_is_not_json_is_told(line):
    with pytest.raises(BadTaskError, match=r"^not JSON in UTF-8: .* at column"):
        parse_task(line)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
words = texts.filter(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = texts | st.sampled_from(["task_name", "website", "evaluator_reference", "definite_answer", "id", "extra"])
common = {
    "id": texts.filter(bool),
    "difficulty": st.integers(1, 2**40),
    "rubric": st.lists(texts, max_size=3).map(tuple),
    "reference_answer": st.none() | texts,
    "extra": st.dictionaries(names, values, max_size=4),
}
addresses = st.sampled_from(["https://a.com", "http://www.b.co.uk:81/x?y#z", "HTTP://[::1]/", "https://ü.de/ß"])
web_tasks = st.builds(Task, instruction=words, start_url=addresses, environment=st.just("web"), **common)
pages = st.sampled_from(list_pages()).map(lambda name: f"{name}.html")
miniwob_tasks = st.builds(Task, instruction=texts, start_url=pages, environment=st.just("miniwob"), **common)
other_tasks = st.builds(
    Task, instruction=texts, start_url=texts, environment=st.sampled_from(["webarena", "tools"]), **common
)


@given(web_tasks | miniwob_tasks | other_tasks)
def test_our_own_format_reads_back_to_an_equal_task(task):
    again = parse_task(task.model_dump_json().encode())
    assert (again, again.key) == (task, task.key)


@given(st.dictionaries(st.sampled_from([*webgym(), *Task.model_fields, "x"]), values))
def test_any_object_is_a_task_or_told(value):
    line = json.dumps(value).encode()
    try:
        task = parse_task(line)
    except BadTaskError as error:
        assert str(error)
    else:
        assert parse_task(task.model_dump_json().encode()) == task
