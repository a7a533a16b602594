"""Solves the wiki's tasks."""

from __future__ import annotations

from collections.abc import Generator

from webgym_cli.environments.fixture_sites.expert_driver import Hands, Plan, Solver
from webgym_cli.records.webrl import AnyAction


def _open(hands: Hands, title: str) -> Plan:
    yield from hands.type("Search articles", f"{title}\n")


def _row(hands: Hands, title: str, label: str) -> Generator[AnyAction, None, str]:
    """Return a row of the box of the article that is shown."""
    found = yield from hands.read(rf"^{title}[\s\S]*?^{label}\t(.+)$")
    return found[0].strip()


def _list_of_cities(hands: Hands) -> Generator[AnyAction, None, list[tuple[str, str, int]]]:
    """Return title, region and population of all cities."""
    yield from hands.click("Cities", "link")
    rows = yield from hands.read_all(r"^(.+)\t(.+)\t([\d,]+)$")
    return [(title, region, int(population.replace(",", ""))) for title, region, population in rows]


def _population(hands: Hands) -> Plan:
    yield from _open(hands, hands.asked["city"])
    population = yield from _row(hands, hands.asked["city"], "Population")
    yield from hands.answer(population)


def _mayor(hands: Hands) -> Plan:
    yield from _open(hands, hands.asked["city"])
    mayor = yield from _row(hands, hands.asked["city"], "Mayor")
    yield from hands.click(mayor, "link")
    birthplace = yield from _row(hands, mayor, "Birthplace")
    yield from hands.answer(f"{mayor}, born in {birthplace}")


def _largest(hands: Hands) -> Plan:
    cities = yield from _list_of_cities(hands)
    city = max((one for one in cities if one[1] == hands.asked["region"]), key=lambda one: one[2])
    yield from hands.answer(f"{city[0]}, {city[2]:,}")


def _watch(hands: Hands) -> Plan:
    for title in (hands.asked["person"], hands.asked["city"]):
        yield from _open(hands, title)
        yield from _row(hands, title, "Born" if title == hands.asked["person"] else "Founded")
        yield from hands.click("Watch", "button")
    yield from hands.answer("done")


def _river(hands: Hands) -> Plan:
    yield from _open(hands, hands.asked["city"])
    river = yield from _row(hands, hands.asked["city"], "River")
    yield from hands.click(river, "link")
    length = yield from _row(hands, river, "Length")
    source = yield from _row(hands, river, "Source elevation")
    on_it = (yield from _row(hands, river, "Cities")).split(", ")
    cities = yield from _list_of_cities(hands)
    largest = max((one for one in cities if one[0] in on_it), key=lambda one: one[2])
    yield from hands.answer(f"{river}, {length} long, source at {source}; the largest city on it is {largest[0]}")


def _correct(hands: Hands) -> Plan:
    asked = hands.asked
    yield from _open(hands, asked["city"])
    yield from hands.click("Edit", "link")
    yield from hands.fill(
        {
            "Population": asked["population"],
            "Elevation": asked["elevation"],
            "Summary of the change": asked["summary"],
        }
    )
    yield from hands.click("Save changes", "button")
    yield from hands.answer("done")


def _compare(hands: Hands) -> Plan:
    lines, founded = [], dict[int, str]()
    for city in (hands.asked["city0"], hands.asked["city1"], hands.asked["city2"]):
        yield from _open(hands, city)
        population = yield from _row(hands, city, "Population")
        year = yield from _row(hands, city, "Founded")
        lines.append(f"{city}: {population}, founded {year}")
        founded[int(year)] = city
    yield from hands.answer(f"{'; '.join(lines)}; oldest: {founded[min(founded)]}")


SOLVERS: dict[str, Solver] = {
    "wiki-population": _population,
    "wiki-mayor": _mayor,
    "wiki-largest": _largest,
    "wiki-watch": _watch,
    "wiki-river": _river,
    "wiki-correct": _correct,
    "wiki-compare": _compare,
}
"""The solver of each task."""
