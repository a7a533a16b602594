"""Encyclopedia of a fictional country: its articles, and an episode's edits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote

from webgym_cli.environments.fixture_sites.answers import is_same_text
from webgym_cli.environments.fixture_sites.words import load_words, people, towns

# Kinds of articles with a list, by the list's name.
LISTS = {"cities": "city", "rivers": "river", "people": "person", "regions": "region"}
_CITIES_OF_A_REGION = 3
# Number of former mayors: persons whose articles no task refers to.
_FORMER = 10


@dataclass(frozen=True, slots=True)
class Article:
    """One article."""

    title: str
    """Unique title; in URLs with underscores for spaces."""
    kind: str
    """`city`, `person`, `river` or `region`."""
    facts: tuple[tuple[str, str], ...]
    """Rows of the infobox: label and value. A value that equals a title links to that article."""
    text: str
    """Paragraphs, separated by line feeds."""

    def __str__(self) -> str:
        """Return its title."""
        return self.title

    def __getitem__(self, label: str) -> str:
        """Return the value of a row. Raises `KeyError` if there is none."""
        return dict(self.facts)[label]


@dataclass(frozen=True, slots=True)
class Encyclopedia:
    """The seeded content of the wiki."""

    country: str
    articles: tuple[Article, ...]

    def find(self, title: str) -> Article | None:
        """Return the article with this title, ignoring case and underscores."""
        wanted = title.replace("_", " ").strip().casefold()
        return next((article for article in self.articles if article.title.casefold() == wanted), None)

    def linked(self, article: Article, label: str) -> list[Article]:
        """Return the articles linked in a row of an article."""
        return [neighbour for title in article[label].split(", ") if (neighbour := self.find(title))]

    def others(self, kind: str, *but: Article) -> list[Article]:
        """Return the articles of a kind except some, by title."""
        return [article for article in self.of(kind) if article not in but]

    def of(self, kind: str) -> list[Article]:
        """Return the articles of a kind, by title."""
        return sorted((article for article in self.articles if article.kind == kind), key=lambda one: one.title)


@dataclass(frozen=True, slots=True)
class Edit:
    """One saved edit of an article."""

    title: str
    before: tuple[tuple[str, str], ...]
    """Rows of its infobox before the edit."""
    after: tuple[tuple[str, str], ...]
    summary: str

    def sets(self, article: Article, label: str, value: str) -> bool:
        """Whether the edit gives a row of an article this value."""
        return self.title == article.title and is_same_text(dict(self.after)[label], value)

    def keeps_all_but(self, *labels: str) -> bool:
        """Whether all other rows are unchanged."""
        before, after = ([row for row in rows if row[0] not in labels] for rows in (self.before, self.after))
        return before == after


@dataclass(slots=True)
class WikiState:
    """Changes of an episode in the wiki."""

    seed: int
    edits: list[Edit] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    """Titles on the watchlist, oldest first."""

    @property
    def edit(self) -> Edit | None:
        """The saved edit; None unless there is exactly one."""
        return self.edits[0] if len(self.edits) == 1 else None

    def facts(self, article: Article) -> tuple[tuple[str, str], ...]:
        """Return the current rows of an article's infobox."""
        return next((edit.after for edit in reversed(self.edits) if edit.title == article.title), article.facts)


def address(title: str, page: str = "wiki") -> str:
    """Return the URL of an article, or of another page about it."""
    return f"/{page}/" + quote(title.replace(" ", "_"))


@lru_cache(maxsize=128)
def encyclopedia(seed: int) -> Encyclopedia:
    """Return the wiki of a seed."""
    rng = random.Random(f"wiki/{seed}")
    words = load_words("wiki")
    regions, country = words["regions"], rng.choice(words["countries"])
    cities = towns(rng, len(regions) * _CITIES_OF_A_REGION)
    names = people(rng, len(cities) + _FORMER)
    rivers = rng.sample(words["rivers"], len(regions))
    populations = rng.sample(range(8_100, 940_000, 7), len(cities))
    years = rng.sample(range(870, 1740), len(cities))
    articles: list[Article] = []
    for at, city in enumerate(cities):
        region, river = regions[at // _CITIES_OF_A_REGION], f"River {rivers[at % len(rivers)]}"
        facts = (
            ("Country", country),
            ("Region", region),
            ("Population", f"{populations[at]:,}"),
            ("Founded", str(years[at])),
            ("Elevation", f"{rng.randint(4, 1400)} m"),
            ("Mayor", names[at]),
            ("River", river),
        )
        articles.append(Article(city, "city", facts, _city_text(rng, city, region, names[len(cities) + at % _FORMER])))
    articles += [_person(rng, name, cities, names.index(name) < len(cities)) for name in names]
    articles += [_river(rng, f"River {name}", at, cities) for at, name in enumerate(rivers)]
    articles += [_region(region, at, cities) for at, region in enumerate(regions)]
    return Encyclopedia(country, tuple(articles))


def _city_text(rng: random.Random, city: str, region: str, former: str) -> str:
    visitors = rng.randint(20, 900) * 100
    return (
        f"{city} is a city in the {region}. Its old town survived the great fire of {rng.randint(1750, 1890)}.\n"
        f"The yearly market draws about {visitors:,} visitors. A street is named after {former}."
    )


def _person(rng: random.Random, name: str, cities: list[str], in_office: bool) -> Article:
    born, job = rng.choice(cities), rng.choice(load_words("wiki")["jobs"])
    facts = (("Born", str(rng.randint(1948, 1991))), ("Birthplace", born), ("Occupation", job))
    office = "is a mayor" if in_office else "was a mayor"
    return Article(name, "person", facts, f"{name} {office} and a {job}, born in {born}.")


def _river(rng: random.Random, title: str, at: int, cities: list[str]) -> Article:
    on_it = cities[at :: len(cities) // _CITIES_OF_A_REGION]
    facts = (
        ("Length", f"{rng.randint(60, 890)} km"),
        ("Source elevation", f"{rng.randint(900, 2900)} m"),
        ("Cities", ", ".join(on_it)),
    )
    return Article(title, "river", facts, f"The {title} rises in the mountains and passes {' and '.join(on_it)}.")


def _region(region: str, at: int, cities: list[str]) -> Article:
    inside = cities[at * _CITIES_OF_A_REGION : (at + 1) * _CITIES_OF_A_REGION]
    facts = (("Cities", ", ".join(inside)), ("Capital", inside[0]))
    return Article(
        region,
        "region",
        facts,
        f"The {region} is one of the {len(cities) // _CITIES_OF_A_REGION} regions of the country.",
    )
