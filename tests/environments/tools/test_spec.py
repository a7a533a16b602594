import re
from fractions import Fraction

import pytest

from webgym_cli.environments.tools.spec import SPEC
from webgym_cli.errors import UsageError
from webgym_cli.tasks.source import open_tasks
from webgym_cli.tools.arithmetic import evaluate


def read_questions(name):
    assert SPEC.list_tasks is not None
    return {task.instruction: task.extra for task in SPEC.list_tasks(name)}


@pytest.mark.parametrize("name", ["all", "sums-train", "sums-test"])
def test_the_expression_of_each_gives_its_answer_from_the_numbers_of_the_question(name):
    for question, record in read_questions(name).items():
        assert evaluate(record["expression"]) == Fraction(record["answer"]), record
        assert set(re.findall(r"\d+", record["expression"])) - {"60", "100", "2"} <= set(re.findall(r"\d+", question))


def test_the_sums_are_all_of_two_digits_in_one_shape():
    questions = read_questions("sums-train") | read_questions("sums-test")
    assert {question: record["expression"] for question, record in questions.items()} == {
        f"Calculate {a} {sign} {b}.": f"{a} {sign} {b}" for a in range(10) for b in range(10) for sign in "+-*"
    }


def test_the_sets_share_no_question_and_have_every_kind():
    names = ("all", "train", "test", "sums-train", "sums-test")
    assert [len(read_questions(name)) for name in names] == [200, 160, 40, 240, 60]
    assert [len(open_tasks(f"arithmetic:{name}")) for name in names] == [200, 160, 40, 240, 60]
    assert read_questions("train") | read_questions("test") == read_questions("all")
    for one, other in (("train", "test"), ("sums-train", "sums-test")):
        assert not read_questions(one).keys() & read_questions(other).keys()
        kinds = [{record["kind"] for record in read_questions(name).values()} for name in (one, other)]
        assert kinds[0] == kinds[1]


def test_an_unknown_set_is_named():
    for find in (read_questions, lambda name: open_tasks(f"arithmetic:{name}")):
        with pytest.raises(UsageError, match="arithmetic:sum"):
            find("sum")
