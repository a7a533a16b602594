"""What the shop sells, and what an episode bought there."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache

from webgym_cli.environments.fixture_sites.words import money, people

CATEGORIES: dict[str, tuple[str, ...]] = {
    "Kitchen": ("Kettle", "Skillet", "Teapot", "Colander", "Grinder", "Ladle", "Saucepan", "Whisk", "Mortar"),
    "Lighting": (
        "Lantern",
        "Chandelier",
        "Sconce",
        "Candlestick",
        "Torch",
        "Uplighter",
        "Nightlight",
        "Pendant",
        "Spot",
    ),
    "Outdoor": ("Hammock", "Tent", "Rucksack", "Compass", "Canteen", "Parasol", "Wheelbarrow", "Trellis", "Awning"),
    "Desk": ("Inkwell", "Stapler", "Blotter", "Bookend", "Globe", "Clipboard", "Abacus", "Easel", "Hourglass"),
    "Textiles": ("Quilt", "Apron", "Curtain", "Cushion", "Tablecloth", "Blanket", "Doormat", "Scarf", "Napkin"),
}
_LOOKS = (
    "Amber Birch Copper Dusky Ebony Frosted Gilded Hazel Ivory Jade Larch Marbled Nordic Opal Pewter Quiet Rustic "
    "Slate Tawny Umber Velvet Willow Zinc"
)
_COLOURS = "Black Blue Brown Green Grey Ochre Red White"
# Products of each category that can't be had.
_SOLD_OUT = 2
_DELIVERED = ("Delivered", "In transit", "Returned", "Cancelled")
_PRAISE = (
    "Arrived well packed.",
    "My neighbour wants one too.",
    "Smaller than I thought, but <b>sturdy</b>.",
    "Would buy again & again.",
    "The finish could be better.",
    '<script>document.title = "owned"</script> Nice try, said the shop.',
    "Exactly as described.",
)
# What express delivery costs; standard delivery is free.
EXPRESS_CENTS = 990


@dataclass(frozen=True, slots=True)
class ProductReview:
    """What a customer wrote."""

    author: str
    stars: int
    text: str
    """Plain text; it may look like HTML."""


@dataclass(frozen=True, slots=True)
class Product:
    """One thing that is sold."""

    id: str
    """As it stands in addresses."""
    name: str
    category: str
    cents: int
    """Price; no two products have the same."""
    tenths: int
    """Rating in tenths of a star; no two products of a category have the same."""
    stock: int
    """0: sold out."""
    grams: int
    days: int
    """Days until delivery."""
    colours: tuple[str, ...]
    reviews: tuple[ProductReview, ...]

    @property
    def price(self) -> str:
        """The price as it is written."""
        return money(self.cents)

    @property
    def rating(self) -> str:
        """The rating as it is written."""
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
    """All that a seed decides about the shop."""

    products: tuple[Product, ...]
    coupon: str
    """The code that the page of deals shows."""
    percent: int
    """What the coupon takes off."""
    past: tuple[PastOrder, ...]

    def of(self, category: str) -> list[Product]:
        """Return the products of a category, in the shop's order."""
        return [product for product in self.products if product.category == category]

    def find(self, product_id: str) -> Product | None:
        """Return the product of that id, if there is one."""
        return next((product for product in self.products if product.id == product_id), None)


@dataclass(slots=True)
class CartLine:
    """One line of the cart or of an order."""

    product: str
    """The product's id."""
    colour: str
    count: int


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order that was placed in the episode."""

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


@dataclass(slots=True)
class ShopState:
    """What an episode changed in the shop."""

    seed: int
    cart: list[CartLine] = field(default_factory=list)
    coupon: str = ""
    orders: list[PlacedOrder] = field(default_factory=list)

    def line(self, product_id: str) -> CartLine | None:
        """Return the cart's line of a product."""
        return next((line for line in self.cart if line.product == product_id), None)

    def subtotal(self) -> int:
        """Return what the cart costs in cents, before coupon and delivery."""
        found = catalogue(self.seed)
        prices = {product.id: product.cents for product in found.products}
        return sum(prices[line.product] * line.count for line in self.cart)

    def discount(self) -> int:
        """Return what the coupon takes off, in cents, rounded down."""
        return self.subtotal() * catalogue(self.seed).percent // 100 if self.coupon else 0


@lru_cache(maxsize=128)
def catalogue(seed: int) -> Catalogue:
    """Return the shop of a seed."""
    rng = random.Random(f"shop/{seed}")
    nouns = [(noun, category) for category, group in CATEGORIES.items() for noun in group]
    prices = rng.sample(range(490, 19990, 10), len(nouns))
    ratings = {category: iter(rng.sample(range(21, 50), len(group))) for category, group in CATEGORIES.items()}
    sold_out = {noun for group in CATEGORIES.values() for noun in rng.sample(group, _SOLD_OUT)}
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
    look = rng.choice(_LOOKS.split())
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
        colours=tuple(sorted(rng.sample(_COLOURS.split(), 4))),
        reviews=tuple(ProductReview(author, rng.randint(1, 5), rng.choice(_PRAISE)) for author in authors),
    )


def _past(rng: random.Random, products: list[Product]) -> tuple[PastOrder, ...]:
    found = []
    for month, product in zip(sorted(rng.sample(range(1, 13), 5)), rng.sample(products, 5), strict=True):
        count = rng.randint(1, 4)
        found.append(
            PastOrder(
                number=str(rng.randint(20000, 79999)),
                date=f"2026-{month:02d}-{rng.randint(1, 28):02d}",
                product=product.name,
                count=count,
                status=rng.choice(_DELIVERED),
                cents=product.cents * count,
            )
        )
    return tuple(reversed(found))
