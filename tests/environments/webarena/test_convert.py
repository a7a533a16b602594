import json

import pytest

from tests.environments.webarena.webarena_records import ADDRESSES, DUMMY, record
from webgym_cli.environments.webarena.tasks import convert_webarena
from webgym_cli.errors import UsageError


def converted(path):
    result = convert_webarena(path, ADDRESSES)
    return [task.id for task in result.tasks], [(bad.file, bad.line, bad.reason) for bad in result.bad]


def written(path, text):
    path.write_text(text)
    return path


RECORDS = [record(task_id=number) for number in range(3)]
FILES = {
    "a list": (json.dumps(RECORDS), ["0", "1", "2"]),
    "a list that is laid out": (json.dumps(RECORDS, indent=2), ["0", "1", "2"]),
    "one a line": ("".join(f"{json.dumps(one)}\n\n" for one in RECORDS), ["0", "1", "2"]),
    "one": (json.dumps(RECORDS[1]), ["1"]),
    "one that is laid out": ("\ufeff" + json.dumps(RECORDS[1], indent=2), ["1"]),
}


@pytest.mark.parametrize(("text", "ids"), FILES.values(), ids=FILES)
def test_a_file_in_every_shape(tmp_path, text, ids):
    assert converted(written(tmp_path / "raw.json", text)) == (ids, [])


def test_a_folder_in_the_order_of_its_numbers(tmp_path):
    for number in (10, 2, 1):
        written(tmp_path / f"{number}.json", json.dumps(record(task_id=number)))
    written(tmp_path / "notes.txt", "{")
    assert converted(tmp_path) == (["1", "2", "10"], [])


def test_generated_ones_too(tmp_path):
    lines = [{"task": "Find it", "web": "oss"}, record(task_id=None, eval=DUMMY, intent="Do it")]
    conversion_result = convert_webarena(written(tmp_path / "new.jsonl", "\n".join(map(json.dumps, lines))), ADDRESSES)
    assert [(task.instruction, task.extra["generated"]) for task in conversion_result.tasks] == [
        ("Find it", True),
        ("Do it", True),
    ]


def test_every_bad_record_is_told_with_its_number(tmp_path):
    path = tmp_path / "raw.json"
    bad = {
        "sites.0: Input should be 'shopping'": record(sites=["bank"]),
        "a task must be a JSON object": [],
        f"task_id: 0 is the one of {path}:1 too": record(task_id=0, intent="Something else"),
        "start_url: the address of __HOMEPAGE__": record(task_id=4, start_url="__HOMEPAGE__"),
    }
    ids, output = converted(written(path, json.dumps([record(task_id=0), *bad.values()])))
    assert ids == ["0"]
    for number, (reason, (_, line, seen)) in enumerate(zip(bad, output, strict=True), 2):
        assert line == number and seen.startswith(reason)
    assert output[-1][2].endswith("(--site homepage=http://HOST:PORT)")


def test_what_is_no_json_is_told_too_and_a_file_without_records_or_none_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"there is no \*\.json in the folder"):
        converted(tmp_path)
    with pytest.raises(UsageError, match=r"none\.json: can't be read"):
        converted(tmp_path / "none.json")
    for text in ("", "\n", "[]"):
        with pytest.raises(UsageError, match="no record in the file"):
            converted(written(tmp_path / "raw.json", text))
    for text, line in (("[{}", 1), (f"{json.dumps(RECORDS[0])}\n{{\n", 2)):
        _, output = converted(written(tmp_path / "raw.json", text))
        assert [(number, reason[:8]) for _, number, reason in output] == [(line, "not JSON")]


def test_tasks_of_webarena_verified_ask_for_its_answer_and_hold_none(tmp_path):
    given = {
        "task_id": 7,
        "sites": ["shopping", "reddit"],
        "intent": "Buy",
        "start_urls": ["__SHOPPING__", "__REDDIT__/f"],
        "eval": [{"evaluator": "AgentResponseEvaluator", "expected": {"retrieved_data": ["secret"]}}],
    }
    path = written(tmp_path / "verified.json", json.dumps([record(task_id=1), given]))
    (_, task), bad_lines = convert_webarena(path, ADDRESSES).tasks, convert_webarena(path, ADDRESSES).bad
    assert (task.id, bad_lines, task.extra["generated"]) == ("7", [], True)
    assert task.instruction.startswith("Buy\n") and "retrieved_data" in task.instruction
    shop, forum = (ADDRESSES[name].rstrip("/") for name in ("shopping", "reddit"))
    assert task.extra["start_urls"] == [shop, f"{forum}/f"]
    urls = {name: of["urls"] for name, of in task.extra["verified"]["environments"].items()}
    assert urls == {"__SHOPPING__": [shop], "__REDDIT__": [forum]}
    assert "secret" not in task.model_dump_json()
    nameless = [{**given, "intent": intent} for intent in (None, " ", 7)]
    path = written(tmp_path / "verified.json", json.dumps(nameless))
    assert [bad.reason for bad in convert_webarena(path, ADDRESSES).bad] == [
        "intent: a text that is not empty is needed"
    ] * 3
