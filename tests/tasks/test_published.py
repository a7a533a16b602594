"""Records of published benchmarks: read by their format, and recognised where another one was expected."""

import json

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import UsageError
from webgym_cli.tasks.convert import convert_fields
from webgym_cli.tasks.format import read_task
from webgym_cli.tasks.registry import TASK_FORMATS, BadTaskError, suggest_format
from webgym_cli.tasks.source import open_tasks

VOYAGER = {"web_name": "Shop", "id": "Shop--0", "ques": "Find a lamp.", "web": "https://a.test/"}
OM2W = {"task_id": "ab", "confirmed_task": "Find a lamp.", "website": "https://a.test/", "level": "easy"}
PUBLISHED = {
    "webvoyager": VOYAGER,
    "online-mind2web": OM2W,
    "deepshop": {**VOYAGER, "attribute": "red", "filter": "None", "sort": "None"},
    "odysseys": {**OM2W, "rubrics": {}},
    "webtailbench": {"id": "t", "task_summary": "Find a lamp."},
    "assistantbench": {"id": "t", "task": "Find a lamp.", "answer": "", "gold_url": "https://a.test/"},
    "webarena": {"task_id": 1, "intent": "Find a lamp.", "start_url": "__SHOP__", "eval": {}, "sites": ["shopping"]},
}


@pytest.mark.parametrize(("name", "record"), PUBLISHED.items())
def test_a_published_record_in_place_of_a_task_is_named_by_its_format(tmp_path, name, record):
    with pytest.raises(BadTaskError) as caught:
        read_task(record)
    assert f"--format {name} " in caught.value.advice
    for content in (json.dumps(record), json.dumps([record])):
        (tmp_path / "tasks.jsonl").write_text(content)
        with pytest.raises(UsageError) as refused:
            open_tasks(str(tmp_path / "tasks.jsonl"))
        assert f"--format {name} " in refused.value.hint


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"id": "a", "task": "Find a lamp.", "url": "https://a.test/"},
        {"id": "a", "task": "Find a lamp.", "answer": "5"},
        {"id": "a", "task": "Find a lamp.", "gold_url": "https://a.test/"},
        {"task_id": 1, "intent": "Find a lamp."},
        {"id": "a", "goal": "Find a lamp."},
        {"id": "a", "web": "https://a.test/"},
        {"task_id": "a", "website": "https://a.test/"},
        {"goal": "Find a lamp.", "website": {"url": "https://a.test/"}},
        {**VOYAGER, "instruction": "Find a lamp.", "difficulty": 0},
        {**OM2W, "task_name": "Find a lamp.", "difficulty": 0},
        {"id": "a", "instruction": "Find a lamp.", "start_url": "ftp://a.test"},
    ],
)
def test_a_record_of_ones_own_is_no_published_one(record):
    with pytest.raises(BadTaskError) as caught:
        read_task(record)
    assert "--format" not in caught.value.advice


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ques": ""}, "ques: is missing, this is no record of webvoyager"),
        ({"ques": "  "}, "ques: a task on the web needs an instruction"),
        ({"ques": 5}, "ques: Input should be a valid string"),
        ({"web": None}, "web: is missing, this is no record of webvoyager"),
        ({"web": ["https://a.test/"]}, "web: Input should be a valid string"),
        ({"web": "https://"}, "web: 'https://' is not the address"),
        ({"web": "file:///etc/passwd"}, "web: 'file:///etc/passwd' is neither http nor https"),
        ({"web": "https://u:p@a.test/"}, "web: an address with a user"),
        ({"max_steps": 0}, "max_steps: a whole number from 1 is needed"),
        (OM2W, "id: is missing, this is no record of webvoyager (webgym tasks convert FILE --format online-mind2web"),
    ],
)
def test_a_bad_record_is_reported_by_the_field_as_the_benchmark_names_it(tmp_path, change, reason):
    record = change if change is OM2W else {**VOYAGER, "id": "Shop--1", **change}
    (tmp_path / "raw.jsonl").write_text("\n".join(map(json.dumps, (VOYAGER, record))))
    (bad,) = TASK_FORMATS.find("webvoyager").convert(tmp_path / "raw.jsonl", load(), ()).bad
    assert bad.line == 2
    assert bad.reason.startswith(reason)
    assert ("--format" in bad.reason) == (change is OM2W)  # a field that is there but empty is of this format


def test_a_bad_record_is_reported_by_the_field_that_the_user_names(tmp_path):
    (tmp_path / "own.csv").write_text("Question,URL,Level\nFind a lamp.,ftp://a.test,easy\n")
    (bad,) = convert_fields(tmp_path / "own.csv", {"instruction": "Question", "start_url": "URL"}, "").bad
    assert bad.reason == "URL: 'ftp://a.test' is neither http nor https"


def test_the_format_with_the_most_fields_is_suggested():
    assert suggest_format(frozenset({**VOYAGER, "attribute": "red"})) == suggest_format(frozenset(VOYAGER))
    assert suggest_format(frozenset({"ques"})) == ""


@pytest.mark.parametrize(
    ("record", "reason", "advised"),
    [
        ({"problem": "p", "canary": "c", "answer": "a"}, "canary: the task is not encrypted", "browsecomp keeps tasks"),
        ({"id": "a", "task_summary": "b", "start_url": "https://a.test/"}, "instruction: ", "webtailbench"),
        ({**VOYAGER, "environment": "web"}, "start_url: ", "webvoyager"),
        (VOYAGER, "a record of a benchmark", "webvoyager"),  # not: MiniWoB has no page of its id
    ],
)
def test_a_published_record_is_refused_with_the_reason_and_its_format(record, reason, advised):
    with pytest.raises(BadTaskError, match=reason) as caught:
        read_task(record)
    assert f"--format {advised} " in caught.value.advice
