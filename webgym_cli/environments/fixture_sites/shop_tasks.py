"""The shop's tasks."""

from __future__ import annotations

import random
from collections.abc import Callable

from webgym_cli.environments.fixture_sites.answers import is_same_text
from webgym_cli.environments.fixture_sites.shop import (
    CATEGORIES,
    CartLine,
    Catalogue,
    PlacedOrder,
    Product,
    ShopState,
    catalogue,
)
from webgym_cli.environments.fixture_sites.task_template import Check, SiteTask, TaskInstance, answer_contains
from webgym_cli.environments.fixture_sites.words import Address, address, money


def _start(task: str, seed: int) -> tuple[random.Random, Catalogue]:
    return random.Random(f"{task}/{seed}"), catalogue(seed)


def _in_stock(found: Catalogue, category: str | None = None) -> list[Product]:
    return [product for product in found.products if product.stock and category in (None, product.category)]


def _names_but(found: Catalogue, *right: Product) -> tuple[str, ...]:
    return tuple(product.name for product in found.products if product not in right)


def _placed(holds: Callable[[PlacedOrder], bool]) -> Check:
    """Make a check of the episode's order; it fails unless exactly one was placed."""
    return lambda state, answer: len(state.orders) == 1 and holds(state.orders[0])


def _with(product: Product, count: int, colour: str | None = None) -> Check:
    """Make a check that the order has so many of a product."""
    return _placed(
        lambda order: any(
            line.product == product.id and line.count == count and colour in (None, line.colour) for line in order.lines
        )
    )


def _sent_to(to: Address) -> Check:
    return _placed(
        lambda order: all(
            is_same_text(given, wanted)
            for given, wanted in (
                (order.name, to.name),
                (order.street, to.street),
                (order.postcode, to.postcode),
                (order.town, to.town),
            )
        )
    )


def _cheapest(seed: int) -> TaskInstance:
    rng, found = _start("shop-cheapest", seed)
    category = rng.choice(tuple(CATEGORIES))
    product = min(found.of(category), key=lambda one: one.cents)
    return TaskInstance(
        {"category": category, "product": product.name},
        (answer_contains(product.name),),
        product.name,
        _names_but(found, product),
    )


def _in_stock_deal(seed: int) -> TaskInstance:
    rng, found = _start("shop-best-in-stock", seed)
    category = rng.choice(tuple(CATEGORIES))
    product = max(_in_stock(found, category), key=lambda one: one.tenths)
    values = {"category": category, "product": product.name, "price": product.price}
    return TaskInstance(
        values,
        (answer_contains(product.name), answer_contains(product.price)),
        f"{product.name}, {product.price}",
        _names_but(found, product),
    )


def _details(seed: int) -> TaskInstance:
    rng, found = _start("shop-details", seed)
    product = rng.choice(found.products)
    values = {"product": product.name, "rating": product.rating, "grams": str(product.grams), "days": str(product.days)}
    answer = f"rating {product.rating} of 5, {product.grams} g, {product.days} days"
    return TaskInstance(
        values,
        (answer_contains(product.rating), answer_contains(values["grams"]), answer_contains(values["days"])),
        answer,
    )


def _cart(seed: int) -> TaskInstance:
    rng, found = _start("shop-cart", seed)
    product, count = rng.choice(_in_stock(found)), rng.randint(2, 4)
    values = {"product": product.name, "count": str(count)}

    def holds(state: ShopState, answer: str) -> bool:
        return [(line.product, line.count) for line in state.cart] == [(product.id, count)]

    return TaskInstance(values, (lambda state, answer: state.line(product.id) is not None, holds))


def _history(seed: int) -> TaskInstance:
    rng, found = _start("shop-history", seed)
    order = rng.choice(found.past)
    values = {"product": order.product, "number": order.number, "status": order.status, "total": money(order.cents)}
    answer = f"order {order.number}, {order.status}, {money(order.cents)}"
    others = tuple({past.status for past in found.past} - {order.status})
    return TaskInstance(
        values,
        (answer_contains(order.number), answer_contains(order.status), answer_contains(money(order.cents))),
        answer,
        others,
    )


def _tidy(seed: int) -> TaskInstance:
    rng, found = _start("shop-tidy-cart", seed)
    kept, gone, changed = rng.sample(_in_stock(found), 3)
    count = rng.randint(2, 4)
    lines = [(kept, 2), (gone, 1), (changed, 1)]

    def prepare(state: ShopState) -> None:
        state.cart = [CartLine(product.id, product.colours[0], number) for product, number in lines]

    def counts(state: ShopState, product: Product) -> int:
        line = state.line(product.id)
        return line.count if line else 0

    checks: tuple[Check, ...] = (
        lambda state, answer: counts(state, gone) == 0,
        lambda state, answer: counts(state, changed) == count,
        lambda state, answer: counts(state, kept) == 2,
        lambda state, answer: len(state.cart) == 2 and not state.orders,
    )
    values = {"gone": gone.name, "changed": changed.name, "kept": kept.name, "count": str(count)}
    return TaskInstance(values, checks, prepare=prepare)


def _address_values(to: Address) -> dict[str, str]:
    return {"name": to.name, "street": to.street, "postcode": to.postcode, "town": to.town}


def _order(seed: int) -> TaskInstance:
    rng, found = _start("shop-order", seed)
    product, count, to = rng.choice(_in_stock(found)), rng.randint(2, 4), address(rng)
    colour = rng.choice(product.colours[1:])
    values = {"product": product.name, "count": str(count), "colour": colour, **_address_values(to)}

    checks: tuple[Check, ...] = (
        _placed(lambda order: True),
        _with(product, count),
        _placed(lambda order: len(order.lines) == 1),
        _with(product, count, colour),
        _placed(lambda order: order.delivery == "express"),
        _sent_to(to),
    )
    return TaskInstance(values, checks)


def _basket(seed: int) -> TaskInstance:
    rng, found = _start("shop-basket", seed)
    first, second, third = rng.sample(tuple(CATEGORIES), 3)
    cheap = min(_in_stock(found, first), key=lambda one: one.cents)
    rated = max(_in_stock(found, second), key=lambda one: one.tenths)
    named, to = rng.choice(_in_stock(found, third)), address(rng)
    values = {
        "first": first,
        "second": second,
        "product": named.name,
        "cheap": cheap.name,
        "rated": rated.name,
        "coupon": found.coupon,
        **_address_values(to),
    }

    checks: tuple[Check, ...] = (
        _with(cheap, 1),
        _with(rated, 2),
        _with(named, 1),
        _placed(lambda order: len(order.lines) == 3),
        _placed(lambda order: order.coupon == found.coupon),
        _placed(lambda order: order.delivery == "standard"),
        _sent_to(to),
    )
    return TaskInstance(values, checks)


_PLACE = "{name}, {street}, {postcode} {town}"
TASKS = (
    SiteTask(
        "shop-cheapest",
        "shop.test",
        "What is the name of the cheapest product in the category {category}? Sold out products count too.",
        ("The cheapest product of the category {category} is the {product}.",),
        _cheapest,
    ),
    SiteTask(
        "shop-best-in-stock",
        "shop.test",
        "Which product of the category {category} has the best rating among those in stock, and what does it cost?",
        ("It is the {product}.", "It costs {price}."),
        _in_stock_deal,
    ),
    SiteTask(
        "shop-details",
        "shop.test",
        "What are the rating, the weight and the delivery time of the {product}?",
        ("Its rating is {rating} of 5.", "It weighs {grams} g.", "It is delivered in {days} days."),
        _details,
    ),
    SiteTask(
        "shop-cart",
        "shop.test",
        "Put {count} pieces of the {product} into the cart, in any colour, and nothing else.",
        ("The {product} is in the cart.", "The cart holds {count} pieces of it and nothing else."),
        _cart,
    ),
    SiteTask(
        "shop-history",
        "shop.test",
        "Look up the past order of the {product}: what are its order number, its status and its total?",
        ("The order number is {number}.", "Its status is: {status}.", "Its total is {total}."),
        _history,
    ),
    SiteTask(
        "shop-tidy-cart",
        "shop.test",
        "In the cart, remove the {gone} and change the quantity of the {changed} to {count}. Leave the {kept} as it is "
        "and order nothing.",
        (
            "The {gone} is no longer in the cart.",
            "The cart holds {count} pieces of the {changed}.",
            "The cart still holds 2 pieces of the {kept}.",
            "The cart holds nothing else and nothing was ordered.",
        ),
        _tidy,
    ),
    SiteTask(
        "shop-order",
        "shop.test",
        f"Order {{count}} pieces of the {{product}} in {{colour}}, with express delivery to {_PLACE}.",
        (
            "One order was placed.",
            "It has {count} pieces of the {product}.",
            "It has nothing else.",
            "Their colour is {colour}.",
            "The delivery is express.",
            f"It goes to {_PLACE}.",
        ),
        _order,
    ),
    SiteTask(
        "shop-basket",
        "shop.test",
        "Place one order of three products: one piece of the cheapest product in stock of the category {first}, two "
        "pieces of the best rated product in stock of the category {second}, and one {product}, each in any colour. "
        f"Use the coupon from the page of deals. Choose standard delivery to {_PLACE}.",
        (
            "The order has 1 {cheap}, the cheapest in stock of {first}.",
            "The order has 2 {rated}, the best rated in stock of {second}.",
            "The order has 1 {product}.",
            "The order has nothing else.",
            "The coupon {coupon} was used.",
            "The delivery is standard.",
            f"It goes to {_PLACE}.",
        ),
        _basket,
    ),
)
