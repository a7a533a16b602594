import json

import pytest

from tests.tasks.lines import FACTS, webgym
from webgym_cli.tasks.check import EDITIONS, Checker, FileReport, describe_edition
from webgym_cli.tasks.format import read_task
from webgym_cli.tasks.registry import BadLine


def lines(*values):
    return [(value if isinstance(value, str) else json.dumps(value)).encode() + b"\n" for value in values]


def test_every_bad_line_is_reported_and_the_good_ones_are_counted():
    report = FileReport("t")
    values = (
        webgym(0),
        "{",
        "",
        webgym(1, difficulty=0),
        webgym(2, difficulty=5, evaluator_reference=FACTS),
        webgym(0, task_id="again"),
        {"id": "clik-test"},
        {"id": "click-test", "rubric": ["a"]},
        webgym(4, website="www.shop0.co.uk", evaluator_reference=None),
    )
    bad = list(Checker().check("t", lines(*values), report))
    assert [(bad_line.file, bad_line.line) for bad_line in bad] == [("t", 2), ("t", 4), ("t", 7)]
    assert bad[1] == BadLine("t", 4, "difficulty: Input should be greater than or equal to 1")
    assert bad[2].reason.startswith("MiniWoB has no page 'clik-test' (start_url takes")
    assert report.to_json() == {
        "event": "checked",
        "file": "t",
        "tasks": 5,
        "bad_lines": 3,
        "digest": "982a8f1395fa69f9",  # of the 4 different ones
        "edition": "",
        "duplicates": 1,
        "in_earlier_files": 0,
        "by_band": {"easy": 4, "medium": 1},
        "by_environment": {"miniwob": 1, "web": 4},
        "sites": 2,
        "rubrics": 4,
    }


def test_a_published_edition_is_named_by_its_digest(monkeypatch):
    report = FileReport("t")
    assert list(Checker().check("t", lines(webgym(0), webgym(1)), report)) == []
    digest = report.to_json()["digest"]
    monkeypatch.setitem(EDITIONS, digest, "made by us")
    assert report.to_json()["edition"] == "made by us"
    tasks = [read_task(webgym(number)) for number in (1, 0, 0)]
    assert describe_edition(tasks) == f"digest {digest}: made by us"


def test_files_are_compared_with_the_earlier_ones():
    checker, train, test = Checker(), FileReport("train"), FileReport("test")
    assert list(checker.check("train", lines(webgym(0), webgym(1)), train)) == []
    assert list(checker.check("test", lines(webgym(1), webgym(2), webgym(1)), test)) == []
    assert (train.in_earlier_files, test.in_earlier_files, test.duplicates) == (0, 1, 1)


@pytest.mark.parametrize(
    ("copy", "count"),
    [
        ({"question": "how many  legs has a spider? ", "answer": 8, "extra_info": {"split": "test"}}, 1),
        ({"question": "How many legs has an ant?", "answer": "6"}, 0),
        ({"question": "How many legs has a spider?", "answer": "6"}, 0),
        ({"question": "How many legs has a spider?", "answer": "8", "images": ["b.png"]}, 0),
    ],
)
def test_a_question_that_was_asked_in_training_is_told_whatever_else_its_record_has(copy, count):
    checker, test = Checker(), FileReport("test")
    question = {"question": "How many legs has a spider?", "answer": "8", "extra_info": {"split": "train"}}
    assert list(checker.check("train", lines(question), FileReport("train"))) == []
    assert list(checker.check("test", lines(copy), test)) == []
    assert (test.in_earlier_files, test.duplicates) == (count, 0)
