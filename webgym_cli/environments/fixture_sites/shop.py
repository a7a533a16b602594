"""Shop: its products, and an episode's orders."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from webgym_cli.environments.fixture_sites.answers import is_same_text
from webgym_cli.environments.fixture_sites.expressions import load_words, money, people

CATEGORIES: dict[str, list[str]] = load_words("shop")["categories"]
# Number of sold-out products per category.
_SOLD_OUT = 2
# Price of express delivery; standard delivery is free.
EXPRESS_CENTS = 990


@dataclass(frozen=True, slots=True)
class ProductReview:
    """A customer's review."""

    author: str
    stars: int
    text: str
    """Plain text, which may look like HTML."""


@dataclass(frozen=True, slots=True)
class Product:
    """One product."""

    id: str
    """Id in URLs."""
    name: str
    category: str
    cents: int
    """Price; unique."""
    tenths: int
    """Rating in tenths of a star; unique per category."""
    stock: int
    """0: sold out."""
    grams: int
    days: int
    """Days until delivery."""
    colours: tuple[str, ...]
    reviews: tuple[ProductReview, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def price(self) -> str:
        """The formatted price."""
        return money(self.cents)

    @property
    def rating(self) -> str:
        """The formatted rating."""
        return f"{self.tenths / 10:.1f}"


@dataclass(frozen=True, slots=True)
class PastOrder:
    """An order from before the episode."""

    number: str
    date: str
    product: str
    count: int
    status: str
    cents: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The seeded content of the shop."""

    products: tuple[Product, ...]
    coupon: str
    """Coupon code on the page of deals."""
    percent: int
    """Discount of the coupon in percent."""
    past: tuple[PastOrder, ...]

    def of(self, category: str) -> list[Product]:
        """Return the products of a category, in the shop's order."""
        return [product for product in self.products if product.category == category]

    def in_stock(self, category: str | None = None) -> list[Product]:
        """Return the available products of one category, or of all."""
        return [product for product in self.products if product.stock and category in (None, product.category)]

    def find(self, product_id: str) -> Product | None:
        """Return the product with this id, or None."""
        return next((product for product in self.products if product.id == product_id), None)


@dataclass(slots=True)
class CartLine:
    """One line of the cart or of an order."""

    product: str
    """Id of the product."""
    colour: str
    count: int


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order placed in the episode."""

    number: str
    lines: tuple[CartLine, ...]
    coupon: str
    """Empty without one."""
    delivery: str
    """`standard` or `express`."""
    name: str
    street: str
    postcode: str
    town: str
    cents: int

    def has(self, product: Product, count: int, colour: str | None = None) -> bool:
        """Whether it contains this number of a product, in a colour if one is given."""
        return any(
            line.product == product.id and line.count == count and colour in (None, line.colour) for line in self.lines
        )

    def goes_to(self, *address: str) -> bool:
        """Whether it is delivered to this name, street, postcode and town."""
        return all(map(is_same_text, (self.name, self.street, self.postcode, self.town), address))


@dataclass(slots=True)
class ShopState:
    """Changes of an episode in the shop."""

    seed: int
    cart: list[CartLine] = field(default_factory=list)
    coupon: str = ""
    orders: list[PlacedOrder] = field(default_factory=list)

    @property
    def order(self) -> PlacedOrder | None:
        """The placed order; None unless there is exactly one."""
        return self.orders[0] if len(self.orders) == 1 else None

    def fill_cart(self, content: list[tuple[Product, int]]) -> None:
        """Put products into the empty cart, in these numbers and their first colours."""
        self.cart = [CartLine(product.id, product.colours[0], count) for product, count in content]

    def count(self, product: Product) -> int:
        """Return the number of a product in the cart."""
        return sum(line.count for line in self.cart if line.product == product.id)

    def line(self, product_id: str) -> CartLine | None:
        """Return the cart's line of a product."""
        return next((line for line in self.cart if line.product == product_id), None)

    def subtotal(self) -> int:
        """Return the price of the cart in cents, before coupon and delivery."""
        goods = catalogue(self.seed)
        prices = {product.id: product.cents for product in goods.products}
        return sum(prices[line.product] * line.count for line in self.cart)

    def total(self) -> int:
        """Return the price of the cart in cents, without delivery."""
        return self.subtotal() - self.discount()

    def discount(self) -> int:
        """Return the coupon's discount in cents, rounded down."""
        if not self.coupon:
            return 0
        return self.subtotal() * catalogue(self.seed).percent // 100


@lru_cache(maxsize=128)
def catalogue(seed: int) -> Catalogue:
    """Return the shop of a seed."""
    rng = random.Random(f"shop/{seed}")
    nouns = [(noun, category) for category, group in CATEGORIES.items() for noun in group]
    prices = rng.sample(range(490, 19990, 10), len(nouns))
    ratings = {category: iter(rng.sample(range(21, 50), len(group))) for category, group in CATEGORIES.items()}
    sold_out = set(chain.from_iterable(rng.sample(group, _SOLD_OUT) for group in CATEGORIES.values()))
    products = [
        _product(rng, noun, category, cents, next(ratings[category]), noun in sold_out)
        for (noun, category), cents in zip(nouns, prices, strict=True)
    ]
    rng.shuffle(products)
    return Catalogue(
        products=tuple(products),
        coupon=rng.choice(("SPRING", "HARVEST", "FROST", "SUNNY")) + str(rng.randint(11, 99)),
        percent=rng.choice((5, 10, 15, 20)),
        past=_past(rng, products),
    )


def _product(rng: random.Random, noun: str, category: str, cents: int, tenths: int, sold_out: bool) -> Product:
    words = load_words("shop")
    look = rng.choice(words["looks"])
    authors = people(rng, rng.randint(2, 4))
    return Product(
        id=f"{look}-{noun}".lower(),
        name=f"{look} {noun}",
        category=category,
        cents=cents,
        tenths=tenths,
        stock=0 if sold_out else rng.randint(4, 40),
        grams=rng.randint(12, 640) * 10,
        days=rng.randint(2, 21),
        colours=tuple(sorted(rng.sample(words["colours"], 4))),
        reviews=tuple(ProductReview(author, rng.randint(1, 5), rng.choice(words["praise"])) for author in authors),
    )


def _past(rng: random.Random, products: list[Product]) -> tuple[PastOrder, ...]:
    orders = []
    for month, product in zip(sorted(rng.sample(range(1, 13), 5)), rng.sample(products, 5), strict=True):
        count = rng.randint(1, 4)
        orders.append(
            PastOrder(
                number=str(rng.randint(20000, 79999)),
                date=f"2026-{month:02d}-{rng.randint(1, 28):02d}",
                product=product.name,
                count=count,
                status=rng.choice(load_words("shop")["statuses"]),
                cents=product.cents * count,
            )
        )
    return tuple(reversed(orders))
