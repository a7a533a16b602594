"""Solves the shop's tasks."""

from __future__ import annotations

import re
from collections.abc import Generator

from webgym_cli.environments.fixture_sites.expert_driver import ActionPlan, ExpertDriver, Solver
from webgym_cli.records.webrl import AnyAction

_CARD = r"^(.+)\n+(€[\d,.]+)\n+★ ([\d.]+) · (in stock|sold out)$"


def _top(
    driver: ExpertDriver, category: str, order: str, *, in_stock: bool
) -> Generator[AnyAction, None, tuple[str, ...]]:
    """Return name and price of the first product of a category in some order."""
    yield from driver.click(category, "link")
    yield from driver.click(order, "link")
    cards = yield from driver.read_all(_CARD)
    return next(card for card in cards if not in_stock or card[3] == "in stock")


def _open(driver: ExpertDriver, product: str) -> ActionPlan:
    yield from driver.type("Search products", f"{product}\n")
    yield from driver.click(product, "link")


def _add(driver: ExpertDriver, count: str) -> ActionPlan:
    yield from driver.type("Quantity", count)
    yield from driver.click("Add to cart", "button")


def _check_out(driver: ExpertDriver, delivery: str) -> ActionPlan:
    """Order what is in the cart that is shown."""
    asked = driver.asked
    yield from driver.click("Check out", "link")
    yield from driver.fill(
        {
            "Full name": asked["name"],
            "Street and number": asked["street"],
            "Postcode": asked["postcode"],
            "Town": asked["town"],
        }
    )
    yield from driver.click(delivery, "radio")
    yield from driver.click("Place order", "button")
    yield from driver.answer("done")


def _cheapest(driver: ExpertDriver) -> ActionPlan:
    card = yield from _top(driver, driver.asked["category"], "Price: low to high", in_stock=False)
    yield from driver.answer(card[0])


def _best_in_stock(driver: ExpertDriver) -> ActionPlan:
    card = yield from _top(driver, driver.asked["category"], "Best rated", in_stock=True)
    yield from driver.answer(f"{card[0]}, {card[1]}")


def _details(driver: ExpertDriver) -> ActionPlan:
    yield from _open(driver, driver.asked["product"])
    told = yield from driver.read(r"^Rating\s+([\d.]+) of 5\s+Weight\s+(\d+) g\s+Delivery\s+(\d+) days")
    yield from driver.answer(
        f"The rating is {told[0]} of 5, the weight {told[1]} g, the delivery takes {told[2]} days."
    )


def _cart(driver: ExpertDriver) -> ActionPlan:
    yield from _open(driver, driver.asked["product"])
    yield from _add(driver, driver.asked["count"])
    yield from driver.answer("done")


def _history(driver: ExpertDriver) -> ActionPlan:
    yield from driver.click("Orders", "link")
    row = rf"^(\d+)\t[\d-]+\t{re.escape(driver.asked['product'])}\t\d+\t(€[\d,.]+)\t(.+)$"
    number, total, status = yield from driver.read(row)
    yield from driver.answer(f"Order {number}, {status}, {total}")


def _tidy(driver: ExpertDriver) -> ActionPlan:
    gone, changed = driver.asked["gone"], driver.asked["changed"]
    yield from driver.click(_cart_link(driver), "link")
    yield from driver.type(f"Quantity of {changed}", driver.asked["count"])
    yield from driver.click(f"Update {changed}", "button")
    yield from driver.click(f"Remove {gone}", "button")
    yield from driver.answer("done")


def _cart_link(driver: ExpertDriver) -> str:
    """Return the name of the link to the cart, which tells how much is in it."""
    return next(element.name for element in driver.elements if element.name.startswith("Cart ("))


def _order(driver: ExpertDriver) -> ActionPlan:
    yield from _open(driver, driver.asked["product"])
    yield from driver.type("Colour", driver.asked["colour"])
    yield from _add(driver, driver.asked["count"])
    yield from _check_out(driver, "Express delivery (€9.90)")


def _basket(driver: ExpertDriver) -> ActionPlan:
    asked = driver.asked
    yield from driver.click("Deals", "link")
    (coupon,) = yield from driver.read(r"Coupon code: (\w+)")
    for category, order, count in ((asked["first"], "Price: low to high", "1"), (asked["second"], "Best rated", "2")):
        card = yield from _top(driver, category, order, in_stock=True)
        yield from driver.click(card[0], "link")
        yield from _add(driver, count)
    yield from _open(driver, asked["product"])
    yield from _add(driver, "1")
    yield from driver.type("Coupon code", f"{coupon}\n")
    yield from _check_out(driver, "Standard delivery (free)")


# The solver of each task.
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
