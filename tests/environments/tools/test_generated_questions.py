import hashlib
import json
import re
from fractions import Fraction

import pytest

from webgym_cli.environments.tools.generated_questions import (
    COUNT,
    TRAIN,
    arithmetic_questions,
    question_sets,
    sum_questions,
)
from webgym_cli.tools.arithmetic import evaluate


def test_the_questions_are_the_same_on_every_machine():
    asked = [{key: text for key, text in record.items() if key != "expression"} for record in arithmetic_questions()]
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    assert digest == "daed8fd181b93a75d9ef7b95b28458067570ddcea3dac070721cd1a7ca211f0c"
    digest = hashlib.sha256(json.dumps(sum_questions()).encode()).hexdigest()
    assert digest == "bdd957e4f1c0394d7287cc616bd4ae041a769e3aeeb9167d10d76173cb201a73"


def test_both_parts_have_every_kind():
    records = arithmetic_questions()
    assert len(records) == COUNT == len({record["question"] for record in records})
    kinds = {record["kind"] for record in records}
    assert {record["kind"] for record in records[:TRAIN]} == {record["kind"] for record in records[TRAIN:]} == kinds


def test_the_answers_are_right():
    numbers = {
        record["id"]: [int(text) for text in re.findall(r"\d+", record["question"])]
        for record in arithmetic_questions()
    }
    solved = {
        "product": lambda a, b: a * b,
        "sharing": lambda total, people: total % people,
        "wages": lambda hourly, minutes: Fraction(hourly * minutes, 60),
        "halving": lambda first: first + Fraction(first, 2),
        "percent": lambda price, share: price - Fraction(price * share, 100),
        "journey": lambda speed, hours, rest: speed * hours + rest,
    }
    for record in arithmetic_questions():
        if record["kind"] in solved:
            right = solved[record["kind"]](*numbers[record["id"]])
        else:
            right = evaluate(record["question"].removeprefix("Calculate ").removesuffix("."))
        assert Fraction(record["answer"]) == right, record


@pytest.mark.parametrize("records", [arithmetic_questions(), sum_questions()], ids=["mixed", "sums"])
def test_the_expression_of_each_gives_its_answer_from_the_numbers_of_the_question(records):
    for record in records:
        assert evaluate(record["expression"]) == Fraction(record["answer"]), record
        assert set(re.findall(r"\d+", record["expression"])) - {"60", "100", "2"} <= set(
            re.findall(r"\d+", record["question"])
        )


def test_the_sums_are_all_of_two_digits_in_one_shape():
    records = sum_questions()
    found = {record["question"]: record["expression"] for record in records}
    assert found == {
        f"Calculate {a} {sign} {b}.": f"{a} {sign} {b}" for a in range(10) for b in range(10) for sign in "+-*"
    }
    assert len(records) == len({record["id"] for record in records}) == 300


def test_the_sets_share_no_question():
    sets = question_sets()
    assert [len(records) for records in sets.values()] == [200, 160, 40, 240, 60]
    for one, other in (("train", "test"), ("sums-train", "sums-test")):
        assert not {record["question"] for record in sets[one]} & {record["question"] for record in sets[other]}
    kinds = {record["kind"] for record in sets["sums-train"]}
    assert {record["kind"] for record in sets["sums-test"]} == kinds == {"sum", "difference", "product"}
