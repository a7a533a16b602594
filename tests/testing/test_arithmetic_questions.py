import hashlib
import json
import re
from fractions import Fraction

from webgym_cli.testing.arithmetic import COUNT, TRAIN, arithmetic_questions
from webgym_cli.tools.arithmetic import evaluate


def test_the_questions_are_the_same_on_every_machine():
    digest = hashlib.sha256(json.dumps(arithmetic_questions()).encode()).hexdigest()
    assert digest == "daed8fd181b93a75d9ef7b95b28458067570ddcea3dac070721cd1a7ca211f0c"


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
