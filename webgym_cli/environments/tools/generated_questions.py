"""Questions with a number for an answer: made by seeded functions, the same on every machine. For tests and demo.

Each has the `expression` that a calculator works it out by, for the expert; the policy reads nothing but the question.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from fractions import Fraction

# Questions in the set.
COUNT = 200
# The first of them are for training, the others for tests.
TRAIN = 160
# The same of the 300 sums.
SUMS_TRAIN = 240
_SEED = 20250115

# The text, the answer, and the expression that has its value.
Question = tuple[str, Fraction, str]


def question_sets() -> dict[str, list[dict[str, str]]]:
    """Return the records of each set, by its name."""
    mixed, sums = arithmetic_questions(), sum_questions()
    return {
        "all": mixed,
        "train": mixed[:TRAIN],
        "test": mixed[TRAIN:],
        "sums-train": sums[:SUMS_TRAIN],
        "sums-test": sums[SUMS_TRAIN:],
    }


def sum_questions() -> list[dict[str, str]]:
    """Return every sum, difference and product of two digits, shuffled, in records as of `arithmetic_questions`.

    All have the same shape, so that the smallest models learn them: two digits and a sign to be copied.
    """
    asked = [
        (kind, f"{a} {sign} {b}", calculate(a, b))
        for kind, (sign, calculate) in _SUMS.items()
        for a in range(10)
        for b in range(10)
    ]
    random.Random(_SEED).shuffle(asked)
    return [
        _record(f"sums-{number:03d}", kind, (f"Calculate {expression}.", Fraction(value), expression))
        for number, (kind, expression, value) in enumerate(asked)
    ]


def arithmetic_questions() -> list[dict[str, str]]:
    """Return the records: `question`, `answer` (a number as a text), `expression`, `kind` and `id`.

    No question comes twice.
    """
    draw = random.Random(_SEED)
    kinds = list(_KINDS.items())
    records: list[dict[str, str]] = []
    asked: set[str] = set()
    while len(records) < COUNT:
        kind, make = kinds[len(records) % len(kinds)]
        made = make(draw)
        if made[0] not in asked:
            asked.add(made[0])
            records.append(_record(f"arithmetic-{len(records):03d}", kind, made))
    return records


def _record(name: str, kind: str, made: Question) -> dict[str, str]:
    question, answer, expression = made
    return {"id": name, "question": question, "answer": _text(answer), "expression": expression, "kind": kind}


def _text(answer: Fraction) -> str:
    """Return a number with at most two decimals, which all answers have."""
    return str(answer.numerator) if answer.denominator == 1 else f"{float(answer):.2f}".rstrip("0")


def _product(draw: random.Random) -> Question:
    a, b = draw.randint(12, 99), draw.randint(12, 99)
    return f"What is {a} times {b}?", Fraction(a * b), f"{a} * {b}"


def _chain(draw: random.Random) -> Question:
    a, b, c, d = (draw.randint(2, 60) for _ in range(4))
    expression = f"{a} * {b} - {c} * {d}"
    return f"Calculate {expression}.", Fraction(a * b - c * d), expression


def _brackets(draw: random.Random) -> Question:
    a, b, c, d = draw.randint(20, 90), draw.randint(2, 19), draw.randint(3, 30), draw.randint(5, 500)
    expression = f"({a} - {b}) * {c} + {d}"
    return f"Calculate {expression}.", Fraction((a - b) * c + d), expression


def _sharing(draw: random.Random) -> Question:
    people, each, left = draw.randint(3, 24), draw.randint(4, 60), draw.randint(1, 2)
    total = people * each + left
    return (
        f"{total} beads are shared equally among {people} children, as many to each as possible. "
        "How many beads are left over?",
        Fraction(left),
        f"{total} % {people}",
    )


def _wages(draw: random.Random) -> Question:
    hourly, minutes = draw.randint(2, 9) * 6, draw.choice((10, 20, 40, 50, 70, 80, 100))
    return (
        f"A helper earns ${hourly} an hour and works {minutes} minutes. How many dollars is that?",
        Fraction(hourly * minutes, 60),
        f"{hourly} * {minutes} / 60",
    )


def _halving(draw: random.Random) -> Question:
    first = draw.randint(11, 140) * 2
    return (
        f"A stall sold {first} lamps in May and half as many in June. How many lamps did it sell in both months?",
        Fraction(first * 3, 2),
        f"{first} + {first} / 2",
    )


def _percent(draw: random.Random) -> Question:
    share, price = draw.choice((5, 10, 15, 20, 25, 40)), draw.randint(4, 60) * 5
    return (
        f"A coat costs ${price} and is sold {share}% cheaper. What is its price now, in dollars?",
        Fraction(price * (100 - share), 100),
        f"{price} * (100 - {share}) / 100",
    )


def _journey(draw: random.Random) -> Question:
    speed, hours, rest = draw.randint(30, 95), draw.randint(2, 9), draw.randint(10, 200)
    return (
        f"A train goes {speed} km an hour for {hours} hours and then another {rest} km. How many km has it gone?",
        Fraction(speed * hours + rest),
        f"{speed} * {hours} + {rest}",
    )


# Each kind of question makes as many as the others.
_KINDS: dict[str, Callable[[random.Random], Question]] = {
    "product": _product,
    "chain": _chain,
    "brackets": _brackets,
    "sharing": _sharing,
    "wages": _wages,
    "halving": _halving,
    "percent": _percent,
    "journey": _journey,
}
# The sign and the function of each kind of sum.
_SUMS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "sum": ("+", operator.add),
    "difference": ("-", operator.sub),
    "product": ("*", operator.mul),
}
