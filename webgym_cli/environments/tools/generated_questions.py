"""Generated questions with numeric answers from seeded functions, equal on every machine. For tests and the demo.

Each has an `expression` for a calculator, which only the expert uses; the policy sees only the question.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from webgym_cli.tools.arithmetic import evaluate, format_number

# Number of questions in the set.
COUNT = 200
# Number of training questions, the first ones; the others are for tests.
TRAIN = 160
# The same for the 300 sums.
SUMS_TRAIN = 240
_SEED = 20250115

# Question text, and the expression whose value is the answer.
Question = tuple[str, str]


def question_sets() -> dict[str, list[dict[str, str]]]:
    """Return the records of each set by name."""
    mixed, sums = arithmetic_questions(), sum_questions()
    return {
        "all": mixed,
        "train": mixed[:TRAIN],
        "test": mixed[TRAIN:],
        "sums-train": sums[:SUMS_TRAIN],
        "sums-test": sums[SUMS_TRAIN:],
    }


def sum_questions() -> list[dict[str, str]]:
    """Return all sums, differences and products of two digits, shuffled, as in `arithmetic_questions`.

    They all have the same shape, so that the smallest models can learn them: two digits and a sign to copy.
    """
    expressions = [(kind, f"{a} {sign} {b}") for kind, sign in _SUMS.items() for a in range(10) for b in range(10)]
    random.Random(_SEED).shuffle(expressions)
    return [
        _record(f"sums-{number:03d}", kind, (f"Calculate {expression}.", expression))
        for number, (kind, expression) in enumerate(expressions)
    ]


def arithmetic_questions() -> list[dict[str, str]]:
    """Return the records: `question`, `answer` (a number as text), `expression`, `kind` and `id`.

    No question occurs twice.
    """
    draw = random.Random(_SEED)
    kinds = list(_KINDS.items())
    records: list[dict[str, str]] = []
    expressions: set[str] = set()
    while len(records) < COUNT:
        kind, make = kinds[len(records) % len(kinds)]
        question = make(draw)
        if question[0] not in expressions:
            expressions.add(question[0])
            records.append(_record(f"arithmetic-{len(records):03d}", kind, question))
    return records


def _record(name: str, kind: str, pair: Question) -> dict[str, str]:
    question, expression = pair
    answer = format_number(evaluate(expression))
    return {"id": name, "question": question, "answer": answer, "expression": expression, "kind": kind}


def _product(draw: random.Random) -> Question:
    a, b = draw.randint(12, 99), draw.randint(12, 99)
    return f"What is {a} times {b}?", f"{a} * {b}"


def _chain(draw: random.Random) -> Question:
    a, b, c, d = (draw.randint(2, 60) for _ in range(4))
    return f"Calculate {a} * {b} - {c} * {d}.", f"{a} * {b} - {c} * {d}"


def _brackets(draw: random.Random) -> Question:
    a, b, c, d = draw.randint(20, 90), draw.randint(2, 19), draw.randint(3, 30), draw.randint(5, 500)
    return f"Calculate ({a} - {b}) * {c} + {d}.", f"({a} - {b}) * {c} + {d}"


def _sharing(draw: random.Random) -> Question:
    people, each, left = draw.randint(3, 24), draw.randint(4, 60), draw.randint(1, 2)
    total = people * each + left
    return (
        f"{total} beads are shared equally among {people} children, as many to each as possible. "
        "How many beads are left over?",
        f"{total} % {people}",
    )


def _wages(draw: random.Random) -> Question:
    hourly, minutes = draw.randint(2, 9) * 6, draw.choice((10, 20, 40, 50, 70, 80, 100))
    return (
        f"A helper earns ${hourly} an hour and works {minutes} minutes. How many dollars is that?",
        f"{hourly} * {minutes} / 60",
    )


def _halving(draw: random.Random) -> Question:
    first = draw.randint(11, 140) * 2
    return (
        f"A stall sold {first} lamps in May and half as many in June. How many lamps did it sell in both months?",
        f"{first} + {first} / 2",
    )


def _percent(draw: random.Random) -> Question:
    share, price = draw.choice((5, 10, 15, 20, 25, 40)), draw.randint(4, 60) * 5
    return (
        f"A coat costs ${price} and is sold {share}% cheaper. What is its price now, in dollars?",
        f"{price} * (100 - {share}) / 100",
    )


def _journey(draw: random.Random) -> Question:
    speed, hours, rest = draw.randint(30, 95), draw.randint(2, 9), draw.randint(10, 200)
    return (
        f"A train goes {speed} km an hour for {hours} hours and then another {rest} km. How many km has it gone?",
        f"{speed} * {hours} + {rest}",
    )


# Kinds of questions, each with the same number of questions.
_KINDS: dict[str, Callable[[random.Random], Question]] = {
    make.__name__.removeprefix("_"): make
    for make in (_product, _chain, _brackets, _sharing, _wages, _halving, _percent, _journey)
}
# Sign of each kind of sum.
_SUMS = {"sum": "+", "difference": "-", "product": "*"}
