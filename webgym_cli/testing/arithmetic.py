"""Questions with a number for an answer: made by a seeded function, the same on every machine. For tests and demo."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

COUNT = 200
"""Questions in the set."""
TRAIN = 160
"""The first of them are for training, the others for tests."""
_SEED = 20250115

Question = tuple[str, Fraction]


def arithmetic_questions() -> list[dict[str, str]]:
    """Return the records: `question`, `answer` (a number as a text), `kind` and `id`. No question comes twice."""
    draw = random.Random(_SEED)
    kinds = list(_KINDS.items())
    records: list[dict[str, str]] = []
    asked: set[str] = set()
    while len(records) < COUNT:
        kind, make = kinds[len(records) % len(kinds)]
        question, answer = make(draw)
        if question not in asked:
            asked.add(question)
            name = f"arithmetic-{len(records):03d}"
            records.append({"id": name, "question": question, "answer": _text(answer), "kind": kind})
    return records


def _text(answer: Fraction) -> str:
    """Return a number with at most two decimals, which all answers have."""
    return str(answer.numerator) if answer.denominator == 1 else f"{float(answer):.2f}".rstrip("0")


def _product(draw: random.Random) -> Question:
    a, b = draw.randint(12, 99), draw.randint(12, 99)
    return f"What is {a} times {b}?", Fraction(a * b)


def _chain(draw: random.Random) -> Question:
    a, b, c, d = (draw.randint(2, 60) for _ in range(4))
    return f"Calculate {a} * {b} - {c} * {d}.", Fraction(a * b - c * d)


def _brackets(draw: random.Random) -> Question:
    a, b, c, d = draw.randint(20, 90), draw.randint(2, 19), draw.randint(3, 30), draw.randint(5, 500)
    return f"Calculate ({a} - {b}) * {c} + {d}.", Fraction((a - b) * c + d)


def _sharing(draw: random.Random) -> Question:
    people, each, left = draw.randint(3, 24), draw.randint(4, 60), draw.randint(1, 2)
    total = people * each + left
    return (
        f"{total} beads are shared equally among {people} children, as many to each as possible. "
        "How many beads are left over?",
        Fraction(left),
    )


def _wages(draw: random.Random) -> Question:
    hourly, minutes = draw.randint(2, 9) * 6, draw.choice((10, 20, 40, 50, 70, 80, 100))
    return f"A helper earns ${hourly} an hour and works {minutes} minutes. How many dollars is that?", Fraction(
        hourly * minutes, 60
    )


def _halving(draw: random.Random) -> Question:
    first = draw.randint(11, 140) * 2
    return (
        f"A stall sold {first} lamps in May and half as many in June. How many lamps did it sell in both months?",
        Fraction(first * 3, 2),
    )


def _percent(draw: random.Random) -> Question:
    share, price = draw.choice((5, 10, 15, 20, 25, 40)), draw.randint(4, 60) * 5
    return (
        f"A coat costs ${price} and is sold {share}% cheaper. What is its price now, in dollars?",
        Fraction(price * (100 - share), 100),
    )


def _journey(draw: random.Random) -> Question:
    speed, hours, rest = draw.randint(30, 95), draw.randint(2, 9), draw.randint(10, 200)
    return (
        f"A train goes {speed} km an hour for {hours} hours and then another {rest} km. How many km has it gone?",
        Fraction(speed * hours + rest),
    )


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
"""Each kind of question makes as many as the others."""
