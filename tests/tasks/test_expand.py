"""Tasks from templates: combinations of values, held-out values, and what is refused."""

import re

import pytest
import yaml

from tests.docs.pages import ROOT
from webgym_cli.errors import UsageError
from webgym_cli.tasks.expand import expand_templates, follow_template

TEMPLATE = {
    "id": "close",
    "environment": "web",
    "start_url": "http://desk/",
    "instruction": "Close '{title}' for {person.name}.",
    "extra": {"team": "{person.team}", "tags": ["{n}"]},
}
SHORT = {"templates": [TEMPLATE | {"instruction": "Close {title}", "extra": {}}]}
BOTH = {"templates": [TEMPLATE | {"instruction": "{title} {n}", "extra": {}}]}
NUMBERS = {"command": "printf '7\\nx\\n7\\n'"}


def write(folder, **changes):
    # a BOM and empty columns, as spreadsheets write them
    (folder / "people.csv").write_text("\ufeffname,team,,\nAda,blue,,\nBob,red,,\n")
    parameters = {"title": ["A b", "C", "D"], "person": {"csv": "people.csv"}, "n": NUMBERS}
    path = folder / "templates.yaml"
    path.write_text(yaml.safe_dump({"parameters": parameters, "templates": [TEMPLATE], **changes}, sort_keys=False))
    return path


def expand(folder, **changes):
    return expand_templates(write(folder, **changes))


def test_the_example_of_the_page_is_expanded_as_printed(tmp_path):
    example = re.search(r"```yaml\n(# templates.yaml\n.*?)```", (ROOT / "docs/checks.md").read_text(), re.DOTALL)[1]
    (tmp_path / "templates.yaml").write_text(example.replace('"python list_tickets.py"', '"echo Fan"'))
    (tmp_path / "people.csv").write_text("name\nAda\nBob\n")
    tasks = expand_templates(tmp_path / "templates.yaml")
    assert (len(tasks.train), len(tasks.test)) == (4 + 2, 1)


def test_every_combination_is_a_task_whose_values_are_its_fields(tmp_path):
    tasks = expand(tmp_path).train
    assert len(tasks) == 3 * 2 * 2 and len({task.key for task in tasks}) == 12
    first = tasks[0]
    assert (first.id, first.instruction) == ("close-a-b-ada-blue-7", "Close 'A b' for Ada.")
    person = {"name": "Ada", "team": "blue", "": ""}
    own = {"title": "A b", "person": person, "n": 7, "team": "blue", "tags": [7]}
    assert first.extra == {**own, "template": TEMPLATE}


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ('\ufeffname;note\r\n"A, b";c\r\n;\r\n', ["A, b"]),  # as a spreadsheet writes it where a comma is in numbers
        ("name\tnote\nA, b\tc\n", ["A, b"]),
        ('"Name; a; b; c", name ,x\nx, "A, b",\ny,  C,\nz, "D" e,\n,,\n', ["A, b", "  C", ' "D" e']),
        ('"a, b, c"; name\nx; "A; ""b"""\n', ['A; "b"']),
        ('note\tname\nc\t    return 1\nd\t "a"\n', ["    return 1", ' "a"']),
        ('note,name\n"x, ""y""",  padded\n', ["  padded"]),
        ("name\nA;b\n", ["A;b"]),
    ],
)
def test_a_table_is_read_whatever_separates_its_columns(tmp_path, table, values):
    (tmp_path / "own.csv").write_text(table, newline="")
    template = TEMPLATE | {"id": "close-{p.name}", "instruction": "Close {p.name}.", "extra": {}}
    tasks = expand(tmp_path, parameters={"p": {"csv": "own.csv"}}, templates=[template]).train
    assert [task.extra["p"]["name"] for task in tasks] == values


def test_a_line_of_a_command_is_a_value_as_json_if_json_can_hold_it(tmp_path):
    texts = {"\ufeffNaN": "NaN", "Infinity": "Infinity", "1e999": "1e999", "A\u2028B\x0c": "A\u2028B"}
    lines = {**texts, "7\r": 7, '{"a": [1]}': {"a": [1]}}
    (tmp_path / "lines").write_text("\n".join(lines), newline="")
    template = TEMPLATE | {"instruction": "Do it.", "extra": {"n": "{n}"}}
    tasks = expand(tmp_path, parameters={"n": {"command": "cat lines"}}, templates=[template]).train
    assert [task.extra["n"] for task in tasks] == list(lines.values())


def test_values_that_are_written_alike_in_an_id_have_ids_of_their_own(tmp_path):
    titles = ["Red", "red", "🎉", "blue", "🎈"]
    tasks = expand(tmp_path, parameters={"title": titles}, **SHORT).train
    ids = {task.extra["title"]: task.id for task in tasks}
    assert [name.rpartition("-")[0] for name in ids.values()] == ["close-red", "close-red", "close-", "close", "close-"]
    assert len(set(ids.values())) == 5 and ids["blue"] == "close-blue"
    tasks = expand(tmp_path, parameters={"title": titles[::-1]}, **SHORT).train
    assert {task.extra["title"]: task.id for task in tasks} == ids


def test_times_dates_and_numbers_with_leading_zeros_stay_as_they_are_written(tmp_path):
    file = tmp_path / "templates.yaml"
    file.write_text(
        "parameters: {n: [12:30, 01234, 2024-02-30, 7, -3, 0x1F, 1e-6, 0.5, 0]}\n"
        "templates: [{id: t, environment: web, start_url: 'http://a/', instruction: 'Find {n}.'}]\n"
    )
    values = [task.extra["n"] for task in expand_templates(file).train]
    assert values == ["12:30", "01234", "2024-02-30", 7, -3, 31, 1e-6, 0.5, 0]
    file.write_text(file.read_text().replace("12:30", "SE, NO"))  # of countries, one would be false
    with pytest.raises(UsageError, match=r"templates.yaml:1: .*NO "):
        expand_templates(file)


@pytest.mark.parametrize(
    ("held_out", "values"), [({"title": ["C"]}, {"C"}), ({"title": 0.3}, None), ({"n": ["x"]}, None)]
)
def test_all_tasks_with_a_held_out_value_are_in_the_test_set(tmp_path, held_out, values):
    expanded = expand(tmp_path, held_out=held_out)
    ((name, chosen),) = expanded.held_out.items()
    assert len(chosen) == 1 and (values is None or set(chosen) == values)
    assert {task.extra[name] for task in expanded.test} == set(chosen)
    assert not {task.extra[name] for task in expanded.train} & set(chosen)
    assert expand(tmp_path, held_out=held_out) == expanded


def test_a_share_depends_on_the_values_and_not_on_their_order(tmp_path):
    titles, shares = [f"title {number}" for number in range(20)], []
    for listed in (titles, titles[::-1]):
        parameters = {"title": listed, "person": [{"name": "A", "team": "b"}], "n": [1]}
        shares.append(set(expand(tmp_path, parameters=parameters, held_out={"title": 0.25}).held_out["title"]))
    assert shares[0] == shares[1] and len(shares[0]) == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"templates": []}, "templates"),
        ({"templates": [TEMPLATE | {"instruction": "{nobody}"}]}, "close: {nobody} is no parameter"),
        ({"templates": [TEMPLATE | {"instruction": "{title} {person.age}"}]}, "there is no column age"),
        ({"templates": [TEMPLATE | {"instruction": "{title} { n } {n}"}]}, "close: a { before n begins no placeholder"),
        ({"templates": [TEMPLATE, TEMPLATE]}, "two tasks have the id"),
        ({"templates": [TEMPLATE | {"start_url": ""}]}, "template close: start_url"),
        ({"held_out": {"title": 1}}, "a share is from 0"),
        ({"held_out": {"title": ["Z"]}}, "'Z' is no value of it; such as 'A b'"),
        ({"held_out": {"titles": 0.1}}, "held_out.titles is no parameter"),
        ({"held_out": {"title": ["A b", "C", "D"]}}, "no task for training"),
        ({"parameters": {"title": {"csv": "nothing.csv"}}}, "nothing.csv can't be read"),
        ({"parameters": {"title": {"command": "false"}}}, "'false' ended with 1"),
        ({"parameters": {"title": {"command": "no-such-program"}}}, "can't be run"),
        ({"parameters": {"title": {}}}, "either csv or command"),
        ({"parameters": {"title": []}}, "has no values"),
        ({"parameters": {"title": {"command": "true"}}}, "'true' printed nothing"),
        ({"parameters": {"title": {"csv": "latin.csv"}}}, "latin.csv is no CSV: not UTF-8"),
        ({"parameters": {"title": {"command": " "}}}, "can't be run"),
        ({"parameters": {"title": {"csv": "ragged.csv"}}}, "ragged.csv: row 2"),
        (
            {"parameters": {"title": {"csv": "twice.csv"}}},
            "twice.csv is no CSV: two columns have the same name: name, name",
        ),
        ({"parameters": {"title": {"command": "echo a | sort"}}}, "| needs a shell"),
        ({"parameters": {"template": ["a"]}}, "parameters.template: a task keeps its template there"),
        ({"parameters": {"title": ["A", True]}, **SHORT}, "True can't be a part of a text"),
        ({"parameters": {"title": ["A", {"name": "B"}]}, **SHORT}, "can't be a part of a text"),
        ({"parameters": {"title": ["A"], "a b": ["C"]}, **SHORT}, "parameters.a b is in no template"),
        (
            {"parameters": {"title": {"command": "seq 1001"}, "n": {"command": "seq 1001"}}, **BOTH},
            "more than 1,000,000 tasks",
        ),
        ({"parameter": {}}, "parameter: there is no such field"),
        ({"parameters": {"int": 5}}, "yaml: parameters.int.list[any]: it should be a list"),
        ({"held_out": {"str": "a"}}, "yaml: held_out.str.list[any]: it should be a list"),
    ],
)
def test_what_can_not_be_expanded_is_refused_with_its_place(tmp_path, changes, words):
    (tmp_path / "ragged.csv").write_text("name,team\nA,b\nC\n")
    (tmp_path / "twice.csv").write_text("name,name\nA,b\n")
    (tmp_path / "latin.csv").write_text("name\nZoë\n", encoding="latin-1")
    with pytest.raises(UsageError, match=r"templates.yaml: ") as caught:
        expand(tmp_path, **changes)
    assert words in f"{caught.value}; {caught.value.hint}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "yaml: the templates can't be read: "),
        (None, "yaml: the templates can't be read: No such file"),
        (b"n: " + b"9" * 5000, "yaml: the templates can't be read: "),
        (b"[" * 3000 + b"]" * 3000, "yaml: the templates can't be read: "),
        (b"{", "yaml:1: not YAML: "),
        (b"a: 1\nb: \x01", "yaml:2: not YAML: unacceptable character #x0001"),
        (b"a: 1\n---\nb: 2", "yaml:2: not YAML: expected a single document in the stream, but found another"),
        (b"a: [1\nb: 2", "yaml:2: not YAML: while parsing a flow sequence, expected ',' or ']'"),
        (b"templates: &a [*a]", "yaml:1: not YAML: a value is within itself"),
        (b"[]", "yaml: it should be a table"),
        (b"", "yaml: it should be a table"),
    ],
)
def test_a_file_that_is_no_yaml_mapping_is_refused(tmp_path, content, words):
    path = tmp_path / "templates.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        expand_templates(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_held_out_value_is_told_from_one_that_python_takes_for_equal(tmp_path):
    templates = [TEMPLATE | {"id": "{n}", "instruction": "Do {n}.", "extra": {}}]
    expanded = expand(tmp_path, parameters={"n": [1, 1.0]}, held_out={"n": [1.0]}, templates=templates)
    assert [[task.extra["n"] for task in tasks] for tasks in (expanded.train, expanded.test)] == [[1], [1.0]]
    assert isinstance(expanded.train[0].extra["n"], int)


@pytest.mark.parametrize(
    ("instruction", "values"),
    [
        ("Order 7 for Cid below 9.5.", {"n": 7, "who": "Cid", "price": 9.5, "quantity": 7}),
        ("Order 7 for 8 below 9.", {"n": 7, "who": "8", "price": 9, "quantity": 7}),
        ("Order many for Cid below 9.5.", None),
        ("Order true for Cid below 9.5.", None),
        ("Order NaN for Cid below 9.5.", None),
        ("Sell 7 to Cid.", None),
    ],
)
def test_a_task_that_follows_a_template_has_numbers_where_the_template_s_are(tmp_path, instruction, values):
    form = {"id": "order", "instruction": "Order {n} for {who} below {price}.", "quantity": "{n}"}
    parameters = {"n": [1, 2], "who": ["Ann"], "price": [1.5]}
    templates = [{**form, "start_url": "http://a.example", "check": "ordered"}]
    task = expand(tmp_path, parameters=parameters, held_out={}, templates=templates).train[0]
    followed = follow_template(task, instruction)
    assert (followed and {name: followed.extra[name] for name in values}) == values
