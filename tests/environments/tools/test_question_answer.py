import json

import pytest

from tests.tables import each
from webgym_cli.config.load import load
from webgym_cli.environments.tools.question_answer import convert_gsm8k
from webgym_cli.errors import UsageError
from webgym_cli.tasks.check import Checker, FileReport
from webgym_cli.tasks.format import BadTaskError, read_task
from webgym_cli.tasks.source import open_tasks

RECORDS = [
    {"question": "How many clips?", "answer": "72"},
    {"question": "How much?", "answer": 10, "level": 2, "id": 7},
    {"question": "Which?", "answer": ["a", "b"]},
]


def written(path, text):
    path.write_text(text)
    return str(path)


def test_a_record_is_a_task_of_the_tools():
    task = read_task(RECORDS[1])
    assert (task.id, task.instruction, task.environment) == ("7", "How much?", "tools")
    assert (task.reference_answer, task.extra) == ("10", {"answer": 10, "level": 2})
    assert read_task(RECORDS[2]).reference_answer is None
    first, again, other = (read_task({"question": "Q", "answer": answer}) for answer in ("1", "1", "2"))
    assert first.id == again.id != other.id and len(first.id) == 16


def user(content):
    return {"role": "user", "content": content}


TEXT = [{"type": "text", "text": "How many?"}]
NAMES = [{"prompt": "How many?"}, {"problem": "How many?"}, {"messages": [user("How many?")]}, {"prompt": [user(TEXT)]}]


@each("record", NAMES)
def test_the_question_may_have_another_name_or_be_a_message(record):
    task = read_task({**record, "answer": "72"})
    assert (task.instruction, task.environment, task.extra) == ("How many?", "tools", {"answer": "72"})


SYSTEM, PICTURE = {"role": "system", "content": "S"}, [{"type": "image_url", "image_url": {"url": "data:"}}]


@each("messages", [[], [SYSTEM, user("Q")], [user(PICTURE)], [user("")]])
def test_messages_that_would_be_asked_otherwise_are_refused(messages):
    with pytest.raises(BadTaskError, match="messages: "):
        read_task({"messages": messages, "answer": "1"})


def test_other_tasks_keep_a_question_as_an_unknown_field():
    ours = {"id": "a", "question": "Q", "instruction": "I", "environment": "tools"}
    for record in (ours, {"question": "Q", "task_name": "T", "website": "https://a.com"}):
        assert read_task(record).extra == {"question": "Q"}


def test_json_lines_and_an_array_are_the_same_tasks_of_any_kind(tmp_path):
    lines = written(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in RECORDS))
    array = written(tmp_path / "a.json", "\ufeff \n" + json.dumps(RECORDS, indent=2))
    first, second = open_tasks(lines), open_tasks(array)
    assert list(first.read(range(3))) == list(second.read(range(3)))
    assert len(second) == 3
    pages = written(tmp_path / "b.json", '[{"id": "click-test", "environment": "miniwob"}]')
    assert open_tasks(pages).task(0).id == "click-test"


@each(
    ("record", "place"),
    [
        *(({"question": text}, "question: ") for text in ("", 3)),
        ({"question": "Q", "id": [1]}, "id: "),
        *(({"question": "Q", "answer": float("inf")}, "stored"), ({"question": "Q \ud83d"}, "stored")),
    ],
)
def test_a_wrong_record_is_refused_by_field(record, place):
    with pytest.raises(BadTaskError, match=place):
        read_task(record)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"question": "Q"}, {"question": ""}]', r"a\.json: record 2: question: a text"),
        ('[{"question": "Q"}, 7]', r"a\.json: record 2: a task must be a JSON object"),
        ('[{"question": "Q"}', r"a\.json: not JSON in UTF-8: EOF"),
        ("[]", r"a\.json: no task in the file"),
    ],
)
def test_a_wrong_array_is_refused_by_file_and_record(tmp_path, text, reason):
    with pytest.raises(UsageError, match=reason):
        open_tasks(written(tmp_path / "a.json", text))


def test_arrays_are_checked_record_by_record():
    text = json.dumps([RECORDS[0], {"question": ""}, RECORDS[0], RECORDS[1], "x"], indent=1).encode()
    report = FileReport("a.json")
    bad = list(Checker().check("a.json", text.splitlines(keepends=True), report))
    assert [(line.line, line.reason) for line in bad] == [
        (2, "question: a text that is not empty is needed"),
        (5, "a task must be a JSON object"),
    ]
    assert (report.tasks, report.duplicates, report.environments) == (3, 1, {"tools": 3})
    (broken,) = Checker().check("a.json", [b"[1,"], FileReport("a.json"))
    assert broken.reason.startswith("not JSON")


@pytest.mark.parametrize("array", [False, True])
def test_pictures_are_beside_the_file_that_names_them(tmp_path, monkeypatch, array):
    monkeypatch.chdir(tmp_path)
    record = {"question": "Q", "answer": 1, "images": ["a.png", "/b.png", {"path": "sub/c.png"}, "data:image/png;,"]}
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "questions.json"
    file.write_text(json.dumps([record] if array else record))
    wanted = [f"{tmp_path}/data/a.png", "/b.png", f"{tmp_path}/data/sub/c.png", "data:image/png;,"]
    for source in ("data/questions.json", str(file)):
        assert open_tasks(source).task(0).extra["images"] == wanted
    assert convert_gsm8k(file, load(), ()).tasks[0].extra["images"] == wanted
