"""The shop's pages: search, products, cart, checkout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

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
    Route,
    SiteRequest,
    SiteResponse,
    dispatch,
    message_page,
    not_found_page,
    parse_whole,
    redirect,
    render_page,
)
from webgym_cli.environments.fixture_sites.words import money

_ON_A_PAGE = 12
_MOST_OF_ONE = 20
_SORTS = {
    "": "Our choice",
    "price": "Price: low to high",
    "-price": "Price: high to low",
    "rating": "Best rated",
}
_ADDRESS = ("name", "street", "postcode", "town")
_DELIVERIES = {"standard": 0, "express": EXPRESS_CENTS}


def answer(state: ShopState, request: SiteRequest) -> SiteResponse:
    """Answer a request to the shop."""
    return dispatch(_ROUTES, state, request)


def _shop(template: str, state: ShopState, status: int = 200, /, **values: Any) -> SiteResponse:
    count = sum(line.count for line in state.cart)
    values = {"query": "", "money": money, **values}
    return render_page(f"shop/{template}.html", status, categories=tuple(CATEGORIES), in_cart=count, **values)


def _home(state: ShopState, request: SiteRequest) -> SiteResponse:
    found = catalogue(state.seed)
    return _shop("home", state, products=found.products[:4], percent=found.percent)


def _category(state: ShopState, request: SiteRequest) -> SiteResponse:
    name = request.parts["name"].title()
    if name not in CATEGORIES:
        return not_found_page()
    return _listing(state, request, name, catalogue(state.seed).of(name))


def _search(state: ShopState, request: SiteRequest) -> SiteResponse:
    query = request.query.get("q", "").strip()
    words = query.casefold().split()
    found = [
        product
        for product in catalogue(state.seed).products
        if all(word in f"{product.name} {product.category}".casefold() for word in words)
    ]
    return _listing(state, request, f"Search: {query}" if query else "All products", found)


def _listing(state: ShopState, request: SiteRequest, title: str, found: Sequence[Product]) -> SiteResponse:
    sort = request.query.get("sort", "")
    ordered = _sorted(found, sort)
    pages = max(1, -(-len(ordered) // _ON_A_PAGE))
    number = parse_whole(request.query.get("page", "1"), 1, pages) or 1

    def address(**changes: str | int) -> str:
        asked = {"q": request.query.get("q", ""), "sort": sort, **changes}
        return f"{request.path}?" + urlencode({key: value for key, value in asked.items() if value})

    return _shop(
        "listing",
        state,
        title=title,
        products=ordered[(number - 1) * _ON_A_PAGE : number * _ON_A_PAGE],
        total=len(ordered),
        sorts=[(label, address(sort=key), key == sort) for key, label in _SORTS.items()],
        pages=[(at, address(page=at), at == number) for at in range(1, pages + 1)],
        query=request.query.get("q", ""),
    )


def _sorted(found: Sequence[Product], sort: str) -> list[Product]:
    if sort == "rating":
        return sorted(found, key=lambda product: -product.tenths)
    if sort in ("price", "-price"):
        return sorted(found, key=lambda product: product.cents, reverse=sort == "-price")
    return list(found)


def _product(state: ShopState, request: SiteRequest) -> SiteResponse:
    product = catalogue(state.seed).find(request.parts["id"])
    return not_found_page() if product is None else _shop("product", state, product=product, error="")


def _add(state: ShopState, request: SiteRequest) -> SiteResponse:
    product = catalogue(state.seed).find(request.field("product"))
    if product is None:
        return not_found_page()
    count = parse_whole(request.field("count"), 1, _MOST_OF_ONE)
    line = state.line(product.id)
    had = line.count if line else 0
    error = ""
    if product.stock == 0:
        error = f"{product.name} is sold out."
    elif count is None:
        error = f"The quantity is a whole number from 1 to {_MOST_OF_ONE}."
    elif had + count > product.stock:
        error = f"Only {product.stock} pieces are left."
    elif request.field("colour") not in product.colours:
        error = "Please choose one of the colours."
    if error or count is None:
        return _shop("product", state, 422, product=product, error=error)
    if line is None:
        state.cart.append(CartLine(product.id, request.field("colour"), count))
    else:
        line.count, line.colour = had + count, request.field("colour")
    return redirect("/cart")


def _cart(state: ShopState, request: SiteRequest) -> SiteResponse:
    return _cart_page(state)


def _cart_page(state: ShopState, error: str = "", status: int = 200) -> SiteResponse:
    found = catalogue(state.seed)
    rows = [(product, line) for line in state.cart if (product := found.find(line.product))]
    total = state.subtotal() - state.discount()
    return _shop("cart", state, status, rows=rows, state=state, percent=found.percent, total=total, error=error)


def _update(state: ShopState, request: SiteRequest) -> SiteResponse:
    line = state.line(request.field("product"))
    product = catalogue(state.seed).find(request.field("product"))
    if line is None or product is None:
        return not_found_page()
    count = parse_whole(request.field("count"), 0, min(_MOST_OF_ONE, product.stock))
    if count is None:
        most = min(_MOST_OF_ONE, product.stock)
        return _cart_page(state, f"The quantity of {product.name} is a whole number from 0 to {most}.", 422)
    if count == 0 or request.field("do") == "remove":
        state.cart.remove(line)
    else:
        line.count = count
    return redirect("/cart")


def _coupon(state: ShopState, request: SiteRequest) -> SiteResponse:
    code = request.field("code").upper()
    if code != catalogue(state.seed).coupon:
        return _cart_page(state, f"There is no coupon {code!r}.", 422)
    state.coupon = code
    return redirect("/cart")


def _deals(state: ShopState, request: SiteRequest) -> SiteResponse:
    found = catalogue(state.seed)
    return _shop("deals", state, coupon=found.coupon, percent=found.percent)


def _checkout(state: ShopState, request: SiteRequest) -> SiteResponse:
    if not state.cart:
        return message_page("Nothing to order", "Your cart is empty.", 409)
    return _checkout_page(state, dict.fromkeys((*_ADDRESS, "delivery"), ""), [])


def _checkout_page(state: ShopState, given: dict[str, str], errors: list[str]) -> SiteResponse:
    total = state.subtotal() - state.discount()
    status = 422 if errors else 200
    return _shop("checkout", state, status, given=given, errors=errors, total=total, express=EXPRESS_CENTS)


def _place(state: ShopState, request: SiteRequest) -> SiteResponse:
    if not state.cart:
        return message_page("Nothing to order", "Your cart is empty.", 409)
    given = {name: request.field(name) for name in (*_ADDRESS, "delivery")}
    errors = [f"Please fill in your {name}." for name in _ADDRESS if not given[name]]
    if given["postcode"] and (len(given["postcode"]) != 5 or not given["postcode"].isdigit()):
        errors.append("A postcode has five digits.")
    if given["delivery"] not in _DELIVERIES:
        errors.append("Please choose a delivery.")
    if errors:
        return _checkout_page(state, given, errors)
    number = str(80000 + (state.seed * 7 + len(state.orders) * 13) % 10000)
    cents = state.subtotal() - state.discount() + _DELIVERIES[given["delivery"]]
    state.orders.append(PlacedOrder(number, tuple(state.cart), state.coupon, cents=cents, **given))
    state.cart, state.coupon = [], ""
    return redirect(f"/order/{number}")


def _order(state: ShopState, request: SiteRequest) -> SiteResponse:
    order = next((order for order in state.orders if order.number == request.parts["number"]), None)
    if order is None:
        return not_found_page()
    found = catalogue(state.seed)
    rows = [(product, line) for line in order.lines if (product := found.find(line.product))]
    return _shop("order", state, order=order, rows=rows)


def _orders(state: ShopState, request: SiteRequest) -> SiteResponse:
    return _shop("orders", state, orders=state.orders[::-1], past=catalogue(state.seed).past)


_ROUTES: tuple[Route[ShopState], ...] = (
    ("GET", "/", _home),
    ("GET", "/category/{name}", _category),
    ("GET", "/search", _search),
    ("GET", "/product/{id}", _product),
    ("GET", "/deals", _deals),
    ("GET", "/cart", _cart),
    ("POST", "/cart/add", _add),
    ("POST", "/cart/update", _update),
    ("POST", "/cart/coupon", _coupon),
    ("GET", "/checkout", _checkout),
    ("POST", "/checkout", _place),
    ("GET", "/order/{number}", _order),
    ("GET", "/orders", _orders),
)
