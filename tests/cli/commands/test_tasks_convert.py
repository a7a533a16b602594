import gzip
import json
import zipfile
from base64 import b64encode
from datetime import date
from decimal import Decimal
from functools import partial
from operator import attrgetter

import pytest

from tests.environments.webarena.webarena_records import record
from tests.forked import webgym
from tests.records.builders import png
from webgym_cli.environments.tools.environment import calculations
from webgym_cli.scoring.registry import REWARDS, reward_fields
from webgym_cli.tasks.registry import TASK_FORMATS
from webgym_cli.tasks.source import open_tasks

BENCHMARKS = TASK_FORMATS.names()
SITES = ["--site", "shopping=http://shop.test:7770"]


@pytest.fixture
def convert(tmp_path):
    raw = [record(task_id=1), record(task_id=2, intent="Find another", eval=None)]
    (tmp_path / "raw.json").write_text(json.dumps(raw))
    return partial(webgym, "tasks", "convert", cwd=tmp_path)


def test_the_tasks_are_a_task_file(convert, tmp_path):
    conversion = convert("raw.json", "--format", "webarena", *SITES, "-o", "out.jsonl")
    note = "2 tasks, 1 of them generated: only a reward model can score those; digest 95834c7cda932a84\n"
    assert (conversion.stdout, conversion.stderr) == ("", note)
    tasks = list(open_tasks(str(tmp_path / "out.jsonl")).read([0, 1]))
    assert [task.id for task in tasks] == ["1", "2"]
    assert {(task.environment, task.start_url) for task in tasks} == {("webarena", "http://shop.test:7770")}
    assert convert("raw.json", "--format", "webarena", *SITES).stdout == (tmp_path / "out.jsonl").read_text()


def test_exact_repeats_are_left_out_and_counted(convert, tmp_path):
    usual = {"sites": ["shopping"], "start_url": "__SHOPPING__"}
    given = [{"intent": name, **usual} for name in ("Buy", "Sell", "Buy", "Buy")]
    (tmp_path / "raw.json").write_text(json.dumps([*given, record(task_id=1), record(task_id=1)]))
    conversion = convert("raw.json", "--format", "webarena", *SITES)
    assert len(conversion.stdout.splitlines()) == 3
    assert "3 left out" in conversion.stderr
    (tmp_path / "raw.json").write_text(json.dumps([record(task_id=1), record(task_id=1, intent="Find another")]))
    convert("raw.json", "--format", "webarena", *SITES, code=2)


def test_addresses_may_come_from_the_settings(convert, tmp_path):
    (tmp_path / "sites.yaml").write_text("webarena: {shopping: {url: 'http://shop.test:1/'}}")
    of_file = convert("raw.json", "--format", "webarena", "-c", "sites.yaml")
    assert [json.loads(line)["start_url"] for line in of_file.stdout.splitlines()] == ["http://shop.test:1"] * 2
    both = convert("raw.json", "--format", "webarena", "-c", "sites.yaml", *SITES)
    assert json.loads(both.stdout.splitlines()[0])["start_url"] == "http://shop.test:7770"


def test_a_bad_record_is_2_and_nothing_is_written(convert, tmp_path):
    (tmp_path / "raw.json").write_text(json.dumps([record(), record(sites=[])]))
    conversion = convert("raw.json", "--format", "webarena", *SITES, "-o", "out.jsonl", code=2)
    assert conversion.stdout == ""
    assert conversion.stderr.startswith("raw.json:2: sites: ")
    assert "webgym: raw.json: 1 bad record; nothing was written" in conversion.stderr
    assert not (tmp_path / "out.jsonl").exists()


# Two rows in the published form, made by hand.
ROWS = [
    {"question": "48 clips, then half as many?", "answer": "She sold 48/2 = <<48/2=24>>24.\nIn all 72.\n#### 72"},
    {"question": "10 boxes of 100?", "answer": "10*100 = <<10*100=1000>>1,000\n#### 1,000"},
]


@pytest.mark.parametrize("form", ["lines", "array", "parquet"])
def test_gsm8ks_published_rows_are_questions_with_their_number(convert, tmp_path, form):
    raw = tmp_path / "rows"
    if form == "parquet":
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(ROWS), raw)
    else:
        raw.write_text(json.dumps(ROWS) if form == "array" else "\n".join(map(json.dumps, ROWS)))
    conversion = convert("rows", "--format", "gsm8k", "-o", "out.jsonl")
    assert conversion.stderr == "2 tasks; digest fc9f8b75e06948ea\n"
    tasks = list(open_tasks(str(tmp_path / "out.jsonl")).read([0, 1]))
    shown = [(task.instruction, task.reference_answer) for task in tasks]
    assert shown == [(ROWS[0]["question"], "72"), (ROWS[1]["question"], "1000")]
    assert [calculations(task) for task in tasks] == [("48/2",), ("10*100",)]
    reward = REWARDS.find("math_reward_string_equal")
    for task in tasks:
        offered = {**reward_fields(task), "trajectory": [{"role": "tool"}]}
        assert reward.function(**reward.bound(offered | {"final_response": f"It is {task.reference_answer}."})) == 1.0


def test_a_row_without_a_final_number_is_named_by_file_line_and_field(convert, tmp_path):
    (tmp_path / "rows").write_text(json.dumps([*ROWS, {"question": "Q", "answer": "about 3"}]))
    assert convert("rows", "--format", "gsm8k", "-o", "out.jsonl", code=2).stderr.startswith("rows:3: answer: ")
    assert not (tmp_path / "out.jsonl").exists()


VOYAGER = {"web_name": "Shop", "id": "Shop--0", "ques": "Find a lamp.", "web": "https://shop.example/"}
MIND = {"task_id": "a1", "confirmed_task": "Find a lamp.", "website": "https://shop.example/", "reference_length": 5}
QUESTION = {"id": "x", "task": "Find a lamp."}
START = ("--site", "start=https://search.example/")
DETAILS = {"attribute": "red", "filter": float("nan"), "sort": "None"}
RUBRICS = {"rubrics": "{'R1': {'requirement': 'A lamp.', 'verification': 'It is open.'}, 'R2': None}"}


@pytest.mark.parametrize(
    ("name", "value", "more", "facts"),
    [
        ("deepshop", VOYAGER | DETAILS, (), {"rubric": ("attribute: red",)}),
        ("webvoyager", {"": 0, **VOYAGER}, (), {"reference_answer": None}),
        ("odysseys", MIND | RUBRICS, (), {"rubric": ("A lamp. (It is open.)",)}),
        ("assistantbench", {**QUESTION, "answer": {"é": [1]}}, START, {"reference_answer": '{"é": [1]}'}),
        ("assistantbench", {**QUESTION, "answer": float("nan")}, START, {"reference_answer": None}),
    ],
)
def test_records_of_benchmarks_become_tasks_of_the_open_web(convert, tmp_path, name, value, more, facts):
    (tmp_path / "raw.json").write_text(json.dumps([value]))
    convert("raw.json", "--format", name, *more, "-o", f"{name}.jsonl")
    (task,) = open_tasks(str(tmp_path / f"{name}.jsonl")).read([0])
    assert (task.environment, task.instruction, task.extra["benchmark"]) == ("web", "Find a lamp.", name)
    assert {field: getattr(task, field) for field in facts} == facts


def test_a_conversion_makes_the_same_tasks_as_ever(convert, tmp_path):
    (tmp_path / "raw.json").write_text(json.dumps([VOYAGER, {**VOYAGER, "id": "Shop--1", "ques": "Find a chair."}]))
    conversion = convert("raw.json", "--format", "webvoyager", "-o", "out.jsonl")
    assert conversion.stderr == "2 tasks; digest 5be1143bfcd9cce9\n"  # else the published editions were not found
    checked = json.loads(webgym("tasks", "check", "out.jsonl", "--json", cwd=tmp_path).stdout)
    assert (checked["digest"], checked["edition"]) == ("5be1143bfcd9cce9", "")


@pytest.mark.parametrize(
    ("name", "next_"),
    [
        *((name.upper(), f"webgym tasks convert FILE --format {name} -o {name}.jsonl") for name in BENCHMARKS),
        *((name, f"{name}:all") for name in ("miniwob", "sites", "arithmetic")),
    ],
)
def test_the_name_of_a_benchmark_or_an_environment_leads_to_its_tasks(tmp_path, name, next_):
    called = webgym("eval", "oracle", "-b", name, cwd=tmp_path, code=2)
    assert called.stderr.startswith(f"webgym: {name}: ") and called.stderr.endswith(f"\n  next: {next_}\n")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rows.tsv", b'id\tone, two, three\ttask_summary\n1\t\t"Find, a ""lamp""\nnow."\n', ""),
        ("ROWS.CSV", b'\xef\xbb\xbfid,task_summary\r\n1,"Find, a ""lamp""\nnow."\r\n', ""),
        ("rows.csv", "id,task_summary\n1,Find\n".encode("utf-16"), "rows.csv:1: "),
        ("rows.csv", b"id,task_summary\n1,Find\n2,\xff\n", "rows.csv:1: "),
        ("rows.csv", b"id,task_summary\n1,Find\n2," + b"x" * 200_000, "rows.csv:2: "),
        ("rows.csv", b"id,task_summary\n1,Find\n2,Find,more\n", "rows.csv:2: "),
        ("rows.csv", b"id,task_summary,id\n1,Find,2\n", "rows.csv:1: "),
        ("rows.csv", b"id,task_summary\n1,Find\n2\n", "rows.csv:2: task_summary"),
    ],
)
def test_a_table_is_read_whole_or_refused(convert, tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    conversion = convert(name, "--format", "webtailbench", *START, code=2 if reason else 0)
    if reason:
        assert conversion.stdout == ""
        assert conversion.stderr.startswith(reason)
    else:
        assert json.loads(conversion.stdout)["instruction"] == 'Find, a "lamp"\nnow.'


OWN = [
    {"No": 1, "Q": {"text": "Find a lamp."}, "Gold": ["lamp", "lantern"], "Level": "hard", "url": ""},
    {"No": 2, "Q": {"text": "Find a chair."}, "Gold": ["chair"], "Level": "easy", "url": "https://shop.example/"},
]
NAMES = ("id=No", "instruction=Q.text", "difficulty=Level", "start_url=url", "reference_answer=Gold")
SHEET = "\ufeffNo;Q.text;Gold;Level;url\r\n1;Find a lamp.;lamp|OR|lantern;hard;\r\n"
SHEET += "2;Find a chair.;chair;easy;https://shop.example/\r\n"


@pytest.mark.parametrize("form", ["own.json", "own.parquet", "wrapped.json", "small.json", "sets.json", "sheet.csv"])
def test_records_of_ones_own_with_other_names(convert, tmp_path, form):
    raw = tmp_path / form
    if form == "own.parquet":
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(OWN), raw)
    elif form == "sheet.csv":
        raw.write_text(SHEET, encoding="utf-8", newline="")
    else:
        values = {
            "wrapped.json": {"version": 1, "tasks": OWN},
            "small.json": {"tasks": OWN},
            "sets.json": [{"id": "a", "tasks": OWN[:1]}, {"id": "b", "tasks": OWN[1:]}],
        }
        raw.write_text(json.dumps(values.get(form, OWN), indent=None if form == "small.json" else 1))
    convert(form, *(f"--field={name}" for name in NAMES), *START, "-o", "out.jsonl")
    first, second = open_tasks(str(tmp_path / "out.jsonl")).read([0, 1])
    shown = attrgetter("id", "instruction", "start_url", "environment", "difficulty", "reference_answer")
    assert shown(first) == ("1", "Find a lamp.", START[1][6:], "web", 7, "lamp|OR|lantern")
    assert shown(second) == ("2", "Find a chair.", "https://shop.example/", "web", 1, "chair")


def test_a_parquet_file_may_hold_pictures_dates_and_decimals(convert, tmp_path):
    from pyarrow import Table, parquet

    row = {"question": "What is it?", "answer": "grey", "images": [{"bytes": png(7), "path": "a.png"}]}
    parquet.write_table(Table.from_pylist([row | {"day": date(2027, 2, 3), "cost": Decimal("1.50")}]), tmp_path / "raw")
    convert("raw", "-o", "out.jsonl")
    (task,) = open_tasks(str(tmp_path / "out.jsonl")).read([0])
    assert (task.extra["day"], task.extra["cost"]) == ("2027-02-03", "1.50")
    assert task.extra["images"] == [f"data:image/png;base64,{b64encode(png(7)).decode()}"]


def test_another_form_than_one_task_a_line_is_to_be_converted(tmp_path):
    (tmp_path / "own.csv").write_text("id,instruction\n1,Find\n")
    (tmp_path / "own.json").write_text(json.dumps({"tasks": OWN}, indent=1))
    for name in ("own.csv", "own.json"):
        for command in (("tasks", "check"), ("tasks", "sample")):
            refused = webgym(*command, name, cwd=tmp_path, code=2)
            assert refused.stdout == ""
            assert f"next: webgym tasks convert {name}" in refused.stderr


@pytest.mark.parametrize(
    ("name", "value", "more"),
    [
        ("webvoyager", MIND, ()),
        ("odysseys", MIND, ()),
        ("odysseys", {**MIND, "rubrics": {"R1": "A lamp."}}, ()),
        ("odysseys", {**MIND, "rubrics": {"R1": {"verification": "It is open."}}}, ()),
        ("assistantbench", {**QUESTION, "id": ["x"]}, START),
        ("assistantbench", {**QUESTION, "id": True}, START),
        ("assistantbench", {**QUESTION, "canary": "z"}, START),
        ("online-mind2web", {**MIND, "confirmed_task": ""}, ()),
        ("webvoyager", VOYAGER, START),
        ("webtailbench", {"id": 3, "task_summary": "Find a lamp."}, ()),
        ("browsecomp", {"problem": "x", "answer": "y", "canary": "z"}, ()),
        ("bu-bench", {}, ()),
    ],
)
def test_what_is_no_such_record_or_may_not_be_written_is_refused(convert, tmp_path, name, value, more):
    (tmp_path / "raw.json").write_text(json.dumps([value]))
    convert("raw.json", "--format", name, *more, "-o", "out.jsonl", code=2)
    assert not (tmp_path / "out.jsonl").exists()


def test_an_archive_is_to_be_unpacked(convert, tmp_path):
    with zipfile.ZipFile(tmp_path / "raw.zip", "w") as archive:
        archive.writestr("raw.jsonl", json.dumps(VOYAGER))
    (tmp_path / "raw.jsonl.gz").write_bytes(gzip.compress(json.dumps(VOYAGER).encode()))
    for name in ("raw.zip", "raw.jsonl.gz"):
        conversion = convert(name, "--format", "webvoyager", code=2)
        assert conversion.stderr.splitlines()[0] == f"webgym: {name}: an archive"
