"""The wiki's tasks."""

from __future__ import annotations

import random
from collections.abc import Callable

from webgym_cli.environments.fixture_sites.answers import ALTERNATIVES, contains_answer_about, is_same_text
from webgym_cli.environments.fixture_sites.task_template import Check, SiteTask, TaskInstance, answer_contains
from webgym_cli.environments.fixture_sites.wiki import Article, Edit, Encyclopedia, encyclopedia


def _start(task: str, seed: int) -> tuple[random.Random, Encyclopedia]:
    return random.Random(f"{task}/{seed}"), encyclopedia(seed)


def _number(city: Article, label: str = "Population") -> int:
    return int(city.fact(label).replace(",", ""))


def _titles_but(found: Encyclopedia, kind: str, *right: str) -> tuple[str, ...]:
    return tuple(article.title for article in found.of(kind) if article.title not in right)


def _in_words(measure: str) -> str:
    """Return a length in all the ways its unit can be written."""
    number, unit = measure.split(" ")
    prefix = "kilo" if unit == "km" else ""
    return ALTERNATIVES.join((measure, f"{number} {prefix}metres", f"{number} {prefix}meters"))


def _find(found: Encyclopedia, title: str) -> Article:
    article = found.find(title)
    if article is None:
        raise LookupError(f"the wiki has no article {title!r}")
    return article


def _population(seed: int) -> TaskInstance:
    rng, found = _start("wiki-population", seed)
    city = rng.choice(found.of("city"))
    population = city.fact("Population")
    return TaskInstance({"city": city.title, "population": population}, (answer_contains(population),), population)


def _mayor(seed: int) -> TaskInstance:
    rng, found = _start("wiki-mayor", seed)
    city = rng.choice(found.of("city"))
    mayor = city.fact("Mayor")
    birthplace = _find(found, mayor).fact("Birthplace")
    rivals = (*_titles_but(found, "person", mayor), *_titles_but(found, "city", birthplace, city.title))
    values = {"city": city.title, "mayor": mayor, "birthplace": birthplace}
    return TaskInstance(
        values, (answer_contains(mayor), answer_contains(birthplace)), f"{mayor}, born in {birthplace}", rivals
    )


def _largest(seed: int) -> TaskInstance:
    rng, found = _start("wiki-largest", seed)
    region = rng.choice(found.of("region")).title
    city = max((one for one in found.of("city") if one.fact("Region") == region), key=_number)
    values = {"region": region, "city": city.title, "population": city.fact("Population")}
    rivals = _titles_but(found, "city", city.title)
    return TaskInstance(
        values,
        (answer_contains(city.title), answer_contains(values["population"])),
        f"{city.title}, {values['population']}",
        rivals,
    )


def _watch(seed: int) -> TaskInstance:
    rng, found = _start("wiki-watch", seed)
    person, city = rng.choice(found.of("person")).title, rng.choice(found.of("city")).title
    checks: tuple[Check, ...] = (
        lambda state, answer: person in state.watched,
        lambda state, answer: city in state.watched,
        lambda state, answer: len(state.watched) == 2,
    )
    return TaskInstance({"person": person, "city": city}, checks)


def _river(seed: int) -> TaskInstance:
    rng, found = _start("wiki-river", seed)
    city = rng.choice(found.of("city"))
    river = _find(found, city.fact("River"))
    largest = max((_find(found, title) for title in river.fact("Cities").split(", ")), key=_number)
    length, source = river.fact("Length"), river.fact("Source elevation")
    values = {"city": city.title, "river": river.title, "length": length, "source": source, "largest": largest.title}
    rivals = (*_titles_but(found, "river", river.title), *_titles_but(found, "city", city.title, largest.title))
    checks = (
        answer_contains(river.title),
        answer_contains(_in_words(length)),
        answer_contains(_in_words(source)),
        answer_contains(largest.title),
    )
    return TaskInstance(
        values, checks, f"{river.title}, {length}, source at {source}, largest city {largest.title}", rivals
    )


def _edited(holds: Callable[[Edit], bool]) -> Check:
    """Make a check of the change that was saved; it fails unless exactly one was."""
    return lambda state, answer: len(state.edits) == 1 and holds(state.edits[0])


def _correct(seed: int) -> TaskInstance:
    rng, found = _start("wiki-correct", seed)
    city = rng.choice(found.of("city"))
    population, elevation = f"{rng.randint(10_000, 899_999):,}", f"{rng.randint(4, 1400)} m"
    summary = f"Census of {rng.randint(2021, 2026)}"
    changed = {"Population": population, "Elevation": elevation}

    def alone(edit: Edit) -> bool:
        kept = [(label, value) for label, value in edit.after if label not in changed]
        return kept == [(label, value) for label, value in edit.before if label not in changed]

    checks = (
        _edited(lambda edit: edit.title == city.title),
        _edited(lambda edit: edit.title == city.title and is_same_text(dict(edit.after)["Population"], population)),
        _edited(lambda edit: edit.title == city.title and is_same_text(dict(edit.after)["Elevation"], elevation)),
        _edited(alone),
        _edited(lambda edit: is_same_text(edit.summary, summary)),
    )
    values = {"city": city.title, "population": population, "elevation": elevation, "summary": summary}
    return TaskInstance(values, checks)


def _told_of(city: Article, label: str, cities: list[Article]) -> Check:
    """Make a check that the answer gives a row's value for the right city."""
    others = [other.title for other in cities if other is not city]
    return lambda state, answer: contains_answer_about(answer, city.title, city.fact(label), others)


def _compare(seed: int) -> TaskInstance:
    rng, found = _start("wiki-compare", seed)
    cities = rng.sample(found.of("city"), 3)
    oldest = min(cities, key=lambda city: _number(city, "Founded"))
    values = {"oldest": oldest.title}
    for at, city in enumerate(cities):
        values |= {
            f"city{at}": city.title,
            f"population{at}": city.fact("Population"),
            f"year{at}": city.fact("Founded"),
        }
    parts = [f"{city.title}: {city.fact('Population')}, founded {city.fact('Founded')}" for city in cities]
    checks = (
        *(_told_of(city, "Population", cities) for city in cities),
        *(_told_of(city, "Founded", cities) for city in cities),
        answer_contains(f"oldest: {oldest.title}"),
    )
    return TaskInstance(values, checks, f"{'; '.join(parts)}; oldest: {oldest.title}")


_HOST = "wiki.test"
TASKS = (
    SiteTask(
        "wiki-population",
        _HOST,
        "How many people live in {city}?",
        ("{population} people live in {city}.",),
        _population,
    ),
    SiteTask(
        "wiki-mayor",
        _HOST,
        "Who is the mayor of {city}, and in which city was that person born?",
        ("The mayor of {city} is {mayor}.", "{mayor} was born in {birthplace}."),
        _mayor,
    ),
    SiteTask(
        "wiki-largest",
        _HOST,
        "Which city of the region {region} has the most inhabitants, and how many?",
        ("It is {city}.", "It has {population} inhabitants."),
        _largest,
    ),
    SiteTask(
        "wiki-watch",
        _HOST,
        "Put the articles {person} and {city} on the watchlist, and no others.",
        ("{person} is on the watchlist.", "{city} is on the watchlist.", "Nothing else is on the watchlist."),
        _watch,
    ),
    SiteTask(
        "wiki-river",
        _HOST,
        "Which river does {city} lie on, how long is it, how high is its source, and which of the cities on it has the "
        "most inhabitants?",
        (
            "{city} lies on the {river}.",
            "The river is {length} long.",
            "Its source lies at {source}.",
            "The largest city on it is {largest}.",
        ),
        _river,
    ),
    SiteTask(
        "wiki-correct",
        _HOST,
        "Correct the article {city} with one edit: the population is {population} and the elevation {elevation}. Leave "
        "the other rows as they are. The summary of the change is: {summary}",
        (
            "The article {city} was edited once, and no other.",
            "Its population is {population}.",
            "Its elevation is {elevation}.",
            "Its other rows are unchanged.",
            "The summary is: {summary}",
        ),
        _correct,
    ),
    SiteTask(
        "wiki-compare",
        _HOST,
        "For each of the cities {city0}, {city1} and {city2}, name the population and the year of its foundation. End "
        "your answer with the word oldest, a colon, and the city that was founded first.",
        (
            "{city0} has {population0} inhabitants.",
            "{city1} has {population1} inhabitants.",
            "{city2} has {population2} inhabitants.",
            "{city0} was founded in {year0}.",
            "{city1} was founded in {year1}.",
            "{city2} was founded in {year2}.",
            "The oldest of the three is {oldest}.",
        ),
        _compare,
    ),
)
