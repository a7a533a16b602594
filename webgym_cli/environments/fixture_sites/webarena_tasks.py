"""What is asked on the fixture sites in WebArena's form, how it is scored, and how it is solved.

All episodes have the same world, so that what is right can stand in the task, as WebArena has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

from webgym_cli.environments.fixture_sites.expert_driver import ActionPlan, ExpertDriver, Solver
from webgym_cli.environments.fixture_sites.experts import load_solvers
from webgym_cli.environments.fixture_sites.mail import mailbox
from webgym_cli.environments.fixture_sites.shop import catalogue
from webgym_cli.environments.fixture_sites.wiki import Article, encyclopedia
from webgym_cli.records.webarena import AND, EvalType, WebArenaSite
from webgym_cli.records.webrl import WebRLAction, WebRLActionName

# The seed of what all these tasks are about.
WORLD = 1
_TYPES = {
    "reference_answers": EvalType.STRING_MATCH,
    "reference_url": EvalType.URL_MATCH,
    "program_html": EvalType.PROGRAM_HTML,
}


@dataclass(frozen=True, slots=True)
class WebArenaFixture:
    """One task, and how it is solved."""

    config: Mapping[str, Any]
    """As WebArena writes it, with its placeholders."""
    solver: Solver
    asked: Mapping[str, str]
    """What the solver is told of the task."""


@cache
def load_fixtures() -> dict[str, WebArenaFixture]:
    """Return the tasks by their ids."""
    made = (_cheapest(), _sorted(), _cart(), _population(), _article(), _edit(), _letter(), _two_tabs(), _generated())
    return {str(one.config["task_id"]): one for one in made}


def _config(name: str, intent: str, sites: list[WebArenaSite], scored: dict[str, Any]) -> dict[str, Any]:
    return {
        "task_id": f"fixture-{name}",
        "sites": [site.value for site in sites],
        "start_url": f" {AND} ".join(site.placeholder for site in sites),
        "intent": intent,
        "require_login": False,
        "storage_state": None,
        "require_reset": False,
        "eval": {"eval_types": [kind for field, kind in _TYPES.items() if field in scored], **scored},
    }


def _place(url: str, locator: str, *wanted: str) -> dict[str, Any]:
    return {"url": url, "locator": locator, "required_contents": {"must_include": list(wanted)}}


def _cheapest() -> WebArenaFixture:
    cheapest = min(catalogue(WORLD).of("Kitchen"), key=lambda product: product.cents)
    intent = "What is the name of the cheapest product of the category Kitchen? Sold out products count too."
    config = _config(
        "cheapest", intent, [WebArenaSite.SHOPPING], {"reference_answers": {"must_include": [cheapest.name]}}
    )
    return WebArenaFixture(config, load_solvers()["shop-cheapest"], {"category": "Kitchen"})


def _sorted() -> WebArenaFixture:
    wanted = {"reference_url": "__SHOPPING__/category/desk?sort=rating", "url_note": "GOLD in PRED"}
    intent = "Show me the products of the category Desk, the best rated first."
    return WebArenaFixture(_config("sorted", intent, [WebArenaSite.SHOPPING], wanted), _show_sorted, {})


def _show_sorted(driver: ExpertDriver) -> ActionPlan:
    yield from driver.click("Desk", "link")
    yield from driver.click("Best rated", "link")
    yield from driver.answer("")


def _cart() -> WebArenaFixture:
    wanted = next(product for product in catalogue(WORLD).products if product.stock > 1 and len(product.colours) > 1)
    colour, field = wanted.colours[-1], f"document.querySelector('[aria-label=\"Quantity of {wanted.name}\"]')"
    places = [
        _place("__SHOPPING__/cart", f"{field}.value", "2"),
        _place("__SHOPPING__/cart", f"{field}.closest('tr').innerText", colour),
    ]
    intent = f"Put 2 pieces of the {wanted.name} in the colour {colour} into the cart."
    config = _config("cart", intent, [WebArenaSite.SHOPPING], {"program_html": places})
    return WebArenaFixture(config, _fill_cart, {"product": wanted.name, "colour": colour})


def _fill_cart(driver: ExpertDriver) -> ActionPlan:
    yield from driver.type("Search products", f"{driver.asked['product']}\n")
    yield from driver.click(driver.asked["product"], "link")
    yield from driver.type("Colour", driver.asked["colour"])
    yield from driver.type("Quantity", "2")
    yield from driver.click("Add to cart", "button")
    yield from driver.answer("")


def _population() -> WebArenaFixture:
    city = _cities()[0]
    wanted = {"reference_answers": {"exact_match": city.fact("Population")}}
    config = _config("population", f"How many people live in {city.title}?", [WebArenaSite.WIKIPEDIA], wanted)
    return WebArenaFixture(config, load_solvers()["wiki-population"], {"city": city.title})


def _article() -> WebArenaFixture:
    city = _cities()[1]
    mayor = city.fact("Mayor")
    wanted = {
        "reference_url": "__WIKIPEDIA__/wiki/" + quote(mayor.replace(" ", "_")),
        "reference_answers": {"must_include": [mayor]},
    }
    intent = f"Who is the mayor of {city.title}? Tell me the name, with that person's article open."
    return WebArenaFixture(
        _config("mayor", intent, [WebArenaSite.WIKIPEDIA], wanted), _show_mayor, {"city": city.title}
    )


def _show_mayor(driver: ExpertDriver) -> ActionPlan:
    yield from driver.type("Search articles", f"{driver.asked['city']}\n")
    (mayor,) = yield from driver.read(r"^Mayor\t(.+)$")
    yield from driver.click(mayor.strip(), "link")
    yield from driver.read(r"^Birthplace\t(.+)$")
    yield from driver.answer(mayor.strip())


def _edit() -> WebArenaFixture:
    city = _cities()[2]
    place = _place("__WIKIPEDIA__/wiki/" + quote(city.title.replace(" ", "_")), "", "123,456")
    intent = f"Change the population of {city.title} to 123,456, with the summary: new count."
    config = _config("edit", intent, [WebArenaSite.WIKIPEDIA], {"program_html": [place]})
    return WebArenaFixture(config, _save_edit, {"city": city.title})


def _save_edit(driver: ExpertDriver) -> ActionPlan:
    yield from driver.type("Search articles", f"{driver.asked['city']}\n")
    yield from driver.click("Edit", "link")
    yield from driver.fill({"Population": "123,456", "Summary of the change": "new count"})
    yield from driver.click("Save changes", "button")
    yield from driver.answer("")


def _letter() -> WebArenaFixture:
    box = mailbox(WORLD)
    name, subject = box.contacts[0].name, "The boat house"
    row = f"[...document.querySelectorAll('tr')].map((row) => row.innerText).find((text) => text.includes('{subject}'))"
    intent = (
        f"Log in as {box.user} with the password {box.password} and write to {name} from the contacts, with the "
        f"subject {subject} and the text: The roof is done."
    )
    wanted = {"program_html": [_place("__REDDIT__/folder/sent", row, box.contacts[0].email)]}
    asked = {"user": box.user, "password": box.password, "name": name, "subject": subject, "text": "The roof is done."}
    return WebArenaFixture(
        _config("letter", intent, [WebArenaSite.REDDIT], wanted), load_solvers()["mail-write"], asked
    )


def _two_tabs() -> WebArenaFixture:
    product, city = catalogue(WORLD).products[3], _cities()[3]
    wanted = {"reference_answers": {"must_include": [product.price.removeprefix("€"), city.fact("Founded")]}}
    intent = (
        f"What does the {product.name} cost in the shop, and in which year was {city.title} founded? "
        "The shop and an encyclopedia are open in two tabs."
    )
    config = _config("tabs", intent, [WebArenaSite.SHOPPING, WebArenaSite.WIKIPEDIA], wanted)
    return WebArenaFixture(config, _read_both, {"product": product.name, "city": city.title})


def _read_both(driver: ExpertDriver) -> ActionPlan:
    yield from driver.type("Search products", f"{driver.asked['product']}\n")
    yield from driver.click(driver.asked["product"], "link")
    (price,) = yield from driver.read(r"^(€[\d,.]+)$")
    yield WebRLAction(name=WebRLActionName.SWITCH_TAB, tab=1)
    yield from driver.type("Search articles", f"{driver.asked['city']}\n")
    (year,) = yield from driver.read(r"^Founded\t(\d+)$")
    yield from driver.answer(f"{price}, {year}")


def _generated() -> WebArenaFixture:
    """Return a task as a curriculum generates them: with a dummy in place of an evaluation."""
    intent = "Which product of the category Lighting is the cheapest?"
    dummy = {
        "reference_answers": {"exact_match": "N/A"},
        "reference_url": "",
        "program_html": [],
        "string_note": "",
        "reference_answer_raw_annotation": "",
    }
    config = _config("generated", intent, [WebArenaSite.SHOPPING], dummy)
    config["eval"]["eval_types"] = [EvalType.STRING_MATCH]
    return WebArenaFixture(config, load_solvers()["shop-cheapest"], {"category": "Lighting"})


def _cities() -> list[Article]:
    return encyclopedia(WORLD).of("city")
