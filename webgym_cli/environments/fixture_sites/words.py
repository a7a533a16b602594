"""Seeded names and addresses of people and towns that don't exist."""

from __future__ import annotations

import random
from dataclasses import dataclass

_FIRST = (
    "Ada Bela Cora Dario Edith Farid Greta Hugo Ines Jonas Kira Leo Mona Nils Olga Pavel Quinn Rosa Samir Tilda Uma "
    "Viktor Wanda Xenia Yusuf Zora Alba Bruno Clea Dmitri Elin Felix"
)
_LAST = (
    "Abbot Barlow Castellan Drummond Eriksen Falk Granger Holloway Ivers Jarrett Kessler Lindqvist Marchetti Novak "
    "Okafor Prescott Quimby Rasmus Sandoval Thorne Ulrich Vasquez Whitlock Yarrow Zeller Beckett Corrigan Dunmore"
)
_TOWN_HEADS = "Al Bram Cor Dun El Fen Gars Hol Ist Kes Lor Mar Nor Os Pel Ral Sel Tor Ul Vel Wes Yar"
_TOWN_TAILS = "wick ford mouth stead haven borough dale minster bridge field gate cliff"
_STREETS = "Mill Harbour Orchard Castle Chapel Linden River Station Meadow Tower Bridge Market"
_KINDS = "Street Lane Road Row Square"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a person lives."""

    name: str
    """First and last name."""
    street: str
    """Street and number."""
    postcode: str
    """Five digits."""
    town: str


def people(rng: random.Random, count: int) -> list[str]:
    """Return so many full names; no first and no last name comes twice (28 at most)."""
    firsts, lasts = rng.sample(_FIRST.split(), count), rng.sample(_LAST.split(), count)
    return [f"{first} {last}" for first, last in zip(firsts, lasts, strict=True)]


def towns(rng: random.Random, count: int) -> list[str]:
    """Return so many different town names (22 at most), none beginning like another."""
    return [head + rng.choice(_TOWN_TAILS.split()) for head in rng.sample(_TOWN_HEADS.split(), count)]


def address(rng: random.Random) -> Address:
    """Return a person with an address."""
    return Address(
        name=people(rng, 1)[0],
        street=f"{rng.choice(_STREETS.split())} {rng.choice(_KINDS.split())} {rng.randint(1, 180)}",
        postcode=f"{rng.randint(10000, 99999)}",
        town=towns(rng, 1)[0],
    )


def code(rng: random.Random, letters: int = 3, digits: int = 4) -> str:
    """Return a reference like `KTR-4821`, without letters and digits that are easily mistaken."""
    head = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(letters))
    return f"{head}-" + "".join(rng.choice("23456789") for _ in range(digits))


def money(cents: int) -> str:
    """Return an amount as the sites write it: `€1,204.50`."""
    return f"€{cents // 100:,}.{cents % 100:02d}"
