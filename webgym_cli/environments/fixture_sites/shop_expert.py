"""Solves the shop's tasks."""

from __future__ import annotations

import re
from collections.abc import Generator

from webgym_cli.environments.fixture_sites.expert_driver import Hands, Plan, Solver
from webgym_cli.records.webrl import AnyAction

_CARD = r"^(.+)\n+(€[\d,.]+)\n+★ ([\d.]+) · (in stock|sold out)$"


def _top(hands: Hands, category: str, order: str, *, in_stock: bool) -> Generator[AnyAction, None, tuple[str, ...]]:
    """Return name and price of the first product of a category in some order."""
    yield from hands.click(category, "link")
    yield from hands.click(order, "link")
    cards = yield from hands.read_all(_CARD)
    return next(card for card in cards if not in_stock or card[3] == "in stock")


def _open(hands: Hands, product: str) -> Plan:
    yield from hands.type("Search products", f"{product}\n")
    yield from hands.click(product, "link")


def _add(hands: Hands, count: str) -> Plan:
    yield from hands.type("Quantity", count)
    yield from hands.click("Add to cart", "button")


def _check_out(hands: Hands, delivery: str) -> Plan:
    """Order what is in the cart that is shown."""
    asked = hands.asked
    yield from hands.click("Check out", "link")
    yield from hands.fill(
        {
            "Full name": asked["name"],
            "Street and number": asked["street"],
            "Postcode": asked["postcode"],
            "Town": asked["town"],
        }
    )
    yield from hands.click(delivery, "radio")
    yield from hands.click("Place order", "button")
    yield from hands.answer("done")


def _cheapest(hands: Hands) -> Plan:
    card = yield from _top(hands, hands.asked["category"], "Price: low to high", in_stock=False)
    yield from hands.answer(card[0])


def _best_in_stock(hands: Hands) -> Plan:
    card = yield from _top(hands, hands.asked["category"], "Best rated", in_stock=True)
    yield from hands.answer(f"{card[0]}, {card[1]}")


def _details(hands: Hands) -> Plan:
    yield from _open(hands, hands.asked["product"])
    told = yield from hands.read(r"^Rating\s+([\d.]+) of 5\s+Weight\s+(\d+) g\s+Delivery\s+(\d+) days")
    yield from hands.answer(f"The rating is {told[0]} of 5, the weight {told[1]} g, the delivery takes {told[2]} days.")


def _cart(hands: Hands) -> Plan:
    yield from _open(hands, hands.asked["product"])
    yield from _add(hands, hands.asked["count"])
    yield from hands.answer("done")


def _history(hands: Hands) -> Plan:
    yield from hands.click("Orders", "link")
    row = rf"^(\d+)\t[\d-]+\t{re.escape(hands.asked['product'])}\t\d+\t(€[\d,.]+)\t(.+)$"
    number, total, status = yield from hands.read(row)
    yield from hands.answer(f"Order {number}, {status}, {total}")


def _tidy(hands: Hands) -> Plan:
    gone, changed = hands.asked["gone"], hands.asked["changed"]
    yield from hands.click(_cart_link(hands), "link")
    yield from hands.type(f"Quantity of {changed}", hands.asked["count"])
    yield from hands.click(f"Update {changed}", "button")
    yield from hands.click(f"Remove {gone}", "button")
    yield from hands.answer("done")


def _cart_link(hands: Hands) -> str:
    """Return the name of the link to the cart, which tells how much is in it."""
    return next(element.name for element in hands.elements if element.name.startswith("Cart ("))


def _order(hands: Hands) -> Plan:
    yield from _open(hands, hands.asked["product"])
    yield from hands.type("Colour", hands.asked["colour"])
    yield from _add(hands, hands.asked["count"])
    yield from _check_out(hands, "Express delivery (€9.90)")


def _basket(hands: Hands) -> Plan:
    asked = hands.asked
    yield from hands.click("Deals", "link")
    (coupon,) = yield from hands.read(r"Coupon code: (\w+)")
    for category, order, count in ((asked["first"], "Price: low to high", "1"), (asked["second"], "Best rated", "2")):
        card = yield from _top(hands, category, order, in_stock=True)
        yield from hands.click(card[0], "link")
        yield from _add(hands, count)
    yield from _open(hands, asked["product"])
    yield from _add(hands, "1")
    yield from hands.type("Coupon code", f"{coupon}\n")
    yield from _check_out(hands, "Standard delivery (free)")


SOLVERS: dict[str, Solver] = {
    "shop-cheapest": _cheapest,
    "shop-best-in-stock": _best_in_stock,
    "shop-details": _details,
    "shop-cart": _cart,
    "shop-history": _history,
    "shop-tidy-cart": _tidy,
    "shop-order": _order,
    "shop-basket": _basket,
}
"""The solver of each task."""
