"""Seeded names and addresses of fictional people and towns."""

from __future__ import annotations

import random
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def load_words(of: str) -> dict[str, Any]:
    """Return the words of a site, or of people and towns, by purpose."""
    words: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))[of]
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
