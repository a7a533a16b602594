"""Solves the wiki's tasks."""

from __future__ import annotations

from collections.abc import Generator

from webgym_cli.environments.fixture_sites.expert_driver import ActionPlan, ExpertDriver, Solver
from webgym_cli.records.webrl import AnyAction


def _open(driver: ExpertDriver, title: str) -> ActionPlan:
    yield from driver.type("Search articles", f"{title}\n")


def _row(driver: ExpertDriver, title: str, label: str) -> Generator[AnyAction, None, str]:
    """Return a row of the box of the article that is shown."""
    found = yield from driver.read(rf"^{title}[\s\S]*?^{label}\t(.+)$")
    return found[0].strip()


def _list_of_cities(driver: ExpertDriver) -> Generator[AnyAction, None, list[tuple[str, str, int]]]:
    """Return title, region and population of all cities."""
    yield from driver.click("Cities", "link")
    rows = yield from driver.read_all(r"^(.+)\t(.+)\t([\d,]+)$")
    return [(title, region, int(population.replace(",", ""))) for title, region, population in rows]


def _population(driver: ExpertDriver) -> ActionPlan:
    yield from _open(driver, driver.asked["city"])
    population = yield from _row(driver, driver.asked["city"], "Population")
    yield from driver.answer(population)


def _mayor(driver: ExpertDriver) -> ActionPlan:
    yield from _open(driver, driver.asked["city"])
    mayor = yield from _row(driver, driver.asked["city"], "Mayor")
    yield from driver.click(mayor, "link")
    birthplace = yield from _row(driver, mayor, "Birthplace")
    yield from driver.answer(f"{mayor}, born in {birthplace}")


def _largest(driver: ExpertDriver) -> ActionPlan:
    cities = yield from _list_of_cities(driver)
    city = max((one for one in cities if one[1] == driver.asked["region"]), key=lambda one: one[2])
    yield from driver.answer(f"{city[0]}, {city[2]:,}")


def _watch(driver: ExpertDriver) -> ActionPlan:
    for title in (driver.asked["person"], driver.asked["city"]):
        yield from _open(driver, title)
        yield from _row(driver, title, "Born" if title == driver.asked["person"] else "Founded")
        yield from driver.click("Watch", "button")
    yield from driver.answer("done")


def _river(driver: ExpertDriver) -> ActionPlan:
    yield from _open(driver, driver.asked["city"])
    river = yield from _row(driver, driver.asked["city"], "River")
    yield from driver.click(river, "link")
    length = yield from _row(driver, river, "Length")
    source = yield from _row(driver, river, "Source elevation")
    on_it = (yield from _row(driver, river, "Cities")).split(", ")
    cities = yield from _list_of_cities(driver)
    largest = max((one for one in cities if one[0] in on_it), key=lambda one: one[2])
    yield from driver.answer(f"{river}, {length} long, source at {source}; the largest city on it is {largest[0]}")


def _correct(driver: ExpertDriver) -> ActionPlan:
    asked = driver.asked
    yield from _open(driver, asked["city"])
    yield from driver.click("Edit", "link")
    yield from driver.fill(
        {
            "Population": asked["population"],
            "Elevation": asked["elevation"],
            "Summary of the change": asked["summary"],
        }
    )
    yield from driver.click("Save changes", "button")
    yield from driver.answer("done")


def _compare(driver: ExpertDriver) -> ActionPlan:
    lines, founded = [], dict[int, str]()
    for city in (driver.asked["city0"], driver.asked["city1"], driver.asked["city2"]):
        yield from _open(driver, city)
        population = yield from _row(driver, city, "Population")
        year = yield from _row(driver, city, "Founded")
        lines.append(f"{city}: {population}, founded {year}")
        founded[int(year)] = city
    yield from driver.answer(f"{'; '.join(lines)}; oldest: {founded[min(founded)]}")


# The solver of each task.
SOLVERS: dict[str, Solver] = {
    "wiki-population": _population,
    "wiki-mayor": _mayor,
    "wiki-largest": _largest,
    "wiki-watch": _watch,
    "wiki-river": _river,
    "wiki-correct": _correct,
    "wiki-compare": _compare,
}
