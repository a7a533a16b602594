"""Jinja expressions and templates of the task files, and the seeded names of people and towns that they sample."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined, Template


@cache
def load_words(of: str) -> dict[str, Any]:
    """Return the words of a site, or of people and towns, by purpose."""
    words: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))[of]
    return words


def people(rng: random.Random, count: int) -> list[str]:
    """Return `count` full names with distinct first and last names (28 at most)."""
    words = load_words("people")
    firsts, lasts = rng.sample(words["first"], count), rng.sample(words["last"], count)
    return [f"{first} {last}" for first, last in zip(firsts, lasts, strict=True)]


def towns(rng: random.Random, count: int) -> list[str]:
    """Return `count` town names (22 at most) with different beginnings."""
    words = load_words("people")
    return [head + rng.choice(words["town_tails"]) for head in rng.sample(words["town_heads"], count)]


def address(rng: random.Random) -> tuple[str, str, str, str]:
    """Return a person's name, street and number, postcode and town."""
    words, name = load_words("people"), people(rng, 1)[0]
    street = f"{rng.choice(words['streets'])} {rng.choice(words['kinds'])} {rng.randint(1, 180)}"
    return name, street, f"{rng.randint(10000, 99999)}", towns(rng, 1)[0]


def code(rng: random.Random, letters: int = 3, digits: int = 4) -> str:
    """Return a reference like `KTR-4821`, without ambiguous letters and digits."""
    head = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(letters))
    return f"{head}-" + "".join(rng.choice("23456789") for _ in range(digits))


def money(cents: int) -> str:
    """Return an amount in the sites' format: `€1,204.50`."""
    return f"€{cents // 100:,}.{cents % 100:02d}"


def add_money(amounts: Iterable[str]) -> str:
    """Return the sum of amounts in the sites' format."""
    return money(sum(int(Decimal(amount.removeprefix("€").replace(",", "")) * 100) for amount in amounts))


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression."""
    return _compile_expression(expression)(names)


def fill(text: str, names: Mapping[str, Any]) -> str:
    """Return a text with its `{{ }}` replaced."""
    return _compile_text(text).render(names)


def draw_names(order: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate expressions in order and return their values by name (one name, or several separated by commas)."""
    drawn: dict[str, Any] = {}
    for names, expression in order.items():
        value = evaluate(expression, {**given, **drawn})
        listed = names.split(", ")
        drawn |= {names: value} if len(listed) == 1 else dict(zip(listed, value, strict=True))
    return drawn


@cache
def _compile_expression(expression: str) -> Callable[..., Any]:
    return _load_environment().compile_expression(expression, undefined_to_none=False)


@cache
def _compile_text(text: str) -> Template:
    return _load_environment().from_string(text)


@cache
def _load_environment() -> Environment:
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.globals |= {part.__name__: part for part in (add_money, address, code, money, people)}
    return environment
