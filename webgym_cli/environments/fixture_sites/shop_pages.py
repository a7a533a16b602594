"""Pages of the shop: search, products, cart, checkout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from webgym_cli.environments.fixture_sites import shop
from webgym_cli.environments.fixture_sites.shop import (
    CATEGORIES,
    EXPRESS_CENTS,
    CartLine,
    PlacedOrder,
    Product,
    ShopState,
    catalogue,
)
from webgym_cli.environments.fixture_sites.web import (
    SitePages,
    SiteRequest,
    list_errors,
    message_page,
    parse_whole,
    redirect,
    require,
    take_page,
)

_ON_A_PAGE = 12
_MOST_OF_ONE = 20
# Sort orders of listings: label and key.
_SORTS: dict[str, tuple[str, Callable[[Product], Any]]] = {
    "": ("Our choice", lambda product: 0),
    "price": ("Price: low to high", lambda product: product.cents),
    "-price": ("Price: high to low", lambda product: -product.cents),
    "rating": ("Best rated", lambda product: -product.tenths),
}
_ADDRESS = ("name", "street", "postcode", "town")
_DELIVERIES = {"standard": 0, "express": EXPRESS_CENTS}
PAGES = SitePages(
    shop,
    catalogue,
    ShopState,
    {
        "category": lambda state, name: name.title() if name.title() in CATEGORIES else None,
        "product": lambda state, name: catalogue(state.seed).find(name),
        "order": lambda state, number: next((order for order in state.orders if order.number == number), None),
    },
)
PAGES.show("/", "home")
PAGES.show("/deals", "deals")
PAGES.show("/directory", "directory")
PAGES.show("/directory/{category}", "directory")
PAGES.show("/product/{product}", "product")
PAGES.show("/cart", "cart")
PAGES.show("/orders", "orders")
PAGES.show("/order/{order}", "order")


@PAGES.get("/category/{category}")
def _category(state: ShopState, request: SiteRequest) -> web.Response:
    name = request.parts["category"]
    return _listing(state, request, name, catalogue(state.seed).of(name))


@PAGES.get("/search")
def _search(state: ShopState, request: SiteRequest) -> web.Response:
    query = request.query.get("q", "").strip()
    words = query.casefold().split()
    products = [
        product
        for product in catalogue(state.seed).products
        if all(word in f"{product.name} {product.category}".casefold() for word in words)
    ]
    return _listing(state, request, f"Search: {query}" if query else "All products", products)


def _listing(state: ShopState, request: SiteRequest, title: str, products: Sequence[Product]) -> web.Response:
    query, sort = request.query.get("q", ""), request.query.get("sort", "")
    ordered = sorted(products, key=_SORTS.get(sort, _SORTS[""])[1])
    shown, number, pages = take_page(ordered, request, _ON_A_PAGE)

    def address(**changes: str | int) -> str:
        given = {"q": query, "sort": sort, **changes}
        return f"{request.path}?" + urlencode({key: value for key, value in given.items() if value})

    return PAGES.page(
        "listing",
        state,
        request,
        title=title,
        products=shown,
        total=len(ordered),
        sorts=[(words, address(sort=key), key == sort) for key, (words, _) in _SORTS.items()],
        pages=[(at, address(page=at), at == number) for at in range(1, pages + 1)],
        query=query,
    )


@PAGES.post("/cart/add")
def _add(state: ShopState, request: SiteRequest) -> web.Response:
    product = require(catalogue(state.seed).find(request.field("product")))
    count = parse_whole(request.field("count"), 1, _MOST_OF_ONE)
    line = state.line(product.id) or CartLine(product.id, "", 0)
    errors = list_errors(
        (product.stock, f"{product.name} is sold out."),
        (count, f"The quantity is a whole number from 1 to {_MOST_OF_ONE}."),
        (line.count + (count or 0) <= product.stock, f"Only {product.stock} pieces are left."),
        (request.field("colour") in product.colours, "Please choose one of the colours."),
    )
    if errors or count is None:
        return PAGES.page("product", state, request, product=product, errors=errors[:1])
    if not line.count:
        state.cart.append(line)
    line.count, line.colour = line.count + count, request.field("colour")
    return redirect("/cart")


@PAGES.post("/cart/update")
def _update(state: ShopState, request: SiteRequest) -> web.Response:
    line = require(state.line(request.field("product")))
    product = require(catalogue(state.seed).find(line.product))
    most = min(_MOST_OF_ONE, product.stock)
    count = parse_whole(request.field("count"), 0, most)
    if count is None:
        error = f"The quantity of {product.name} is a whole number from 0 to {most}."
        return PAGES.page("cart", state, request, errors=[error])
    if count == 0 or request.field("do") == "remove":
        state.cart.remove(line)
    else:
        line.count = count
    return redirect("/cart")


@PAGES.post("/cart/coupon")
def _coupon(state: ShopState, request: SiteRequest) -> web.Response:
    code = request.field("code").upper()
    if code != catalogue(state.seed).coupon:
        return PAGES.page("cart", state, request, errors=[f"There is no coupon {code!r}."])
    state.coupon = code
    return redirect("/cart")


@PAGES.get("/checkout")
def _checkout(state: ShopState, request: SiteRequest) -> web.Response:
    return _show_checkout(state, request, ())


def _show_checkout(state: ShopState, request: SiteRequest, errors: Sequence[str]) -> web.Response:
    if not state.cart:
        return message_page("Nothing to order", "Your cart is empty.", 409)
    return PAGES.page("checkout", state, request, errors=errors)


@PAGES.post("/checkout")
def _place(state: ShopState, request: SiteRequest) -> web.Response:
    given = {name: request.field(name) for name in (*_ADDRESS, "delivery")}
    postcode = given["postcode"]
    errors = [f"Please fill in your {name}." for name in _ADDRESS if not given[name]]
    errors += list_errors(
        (not postcode or (len(postcode) == 5 and postcode.isdigit()), "A postcode has five digits."),
        (given["delivery"] in _DELIVERIES, "Please choose a delivery."),
    )
    if errors or not state.cart:
        return _show_checkout(state, request, errors)
    number = str(80000 + (state.seed * 7 + len(state.orders) * 13) % 10000)
    cents = state.total() + _DELIVERIES[given["delivery"]]
    state.orders.append(PlacedOrder(number, tuple(state.cart), state.coupon, cents=cents, **given))
    state.cart, state.coupon = [], ""
    return redirect(f"/order/{number}")
