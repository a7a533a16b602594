import re
from fractions import Fraction

import pytest

from webgym_cli.environments.tools.spec import SPEC
from webgym_cli.errors import UsageError
from webgym_cli.tasks.source import open_tasks
from webgym_cli.tools.arithmetic import evaluate


def asked(name):
    assert SPEC.list_tasks is not None
    return {task.instruction: task.extra for task in SPEC.list_tasks(name)}


@pytest.mark.parametrize("name", ["all", "sums-train", "sums-test"])
def test_the_expression_of_each_gives_its_answer_from_the_numbers_of_the_question(name):
    for question, record in asked(name).items():
        assert evaluate(record["expression"]) == Fraction(record["answer"]), record
        assert set(re.findall(r"\d+", record["expression"])) - {"60", "100", "2"} <= set(re.findall(r"\d+", question))


def test_the_sums_are_all_of_two_digits_in_one_shape():
    questions = asked("sums-train") | asked("sums-test")
    assert {question: record["expression"] for question, record in questions.items()} == {
        f"Calculate {a} {sign} {b}.": f"{a} {sign} {b}" for a in range(10) for b in range(10) for sign in "+-*"
    }


def test_the_sets_share_no_question_and_have_every_kind():
    names = ("all", "train", "test", "sums-train", "sums-test")
    assert [len(asked(name)) for name in names] == [200, 160, 40, 240, 60]
    assert [len(open_tasks(f"arithmetic:{name}")) for name in names] == [200, 160, 40, 240, 60]
    assert asked("train") | asked("test") == asked("all")
    for one, other in (("train", "test"), ("sums-train", "sums-test")):
        assert not asked(one).keys() & asked(other).keys()
        kinds = [{record["kind"] for record in asked(name).values()} for name in (one, other)]
        assert kinds[0] == kinds[1]


def test_an_unknown_set_is_named():
    for find in (asked, lambda name: open_tasks(f"arithmetic:{name}")):
        with pytest.raises(UsageError, match="arithmetic:sum"):
            find("sum")
