"""The shop's pages: search, products, cart, checkout."""

from __future__ import annotations

from collections.abc import Sequence
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
    MissingPageError,
    SitePages,
    SiteRequest,
    SiteResponse,
    message_page,
    parse_whole,
    redirect,
    require,
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
PAGES: SitePages[ShopState] = SitePages(
    "shop", catalogue, money=money, categories=tuple(CATEGORIES), express=EXPRESS_CENTS
)
PAGES.show("/", "home")
PAGES.show("/deals", "deals")
PAGES.show("/directory", "directory")
PAGES.show("/cart", "cart")
PAGES.show("/orders", "orders")
answer = PAGES.answer


@PAGES.get("/category/{name}")
def _category(state: ShopState, request: SiteRequest) -> SiteResponse:
    name = request.parts["name"].title()
    if name not in CATEGORIES:
        raise MissingPageError
    return _listing(state, request, name, catalogue(state.seed).of(name))


@PAGES.get("/directory/{name}")
def _directory(state: ShopState, request: SiteRequest) -> SiteResponse:
    name = request.parts["name"].title()
    if name not in CATEGORIES:
        raise MissingPageError
    return PAGES.page("directory", state, name=name, products=catalogue(state.seed).of(name))


@PAGES.get("/search")
def _search(state: ShopState, request: SiteRequest) -> SiteResponse:
    query = request.query.get("q", "").strip()
    words = query.casefold().split()
    products = [
        product
        for product in catalogue(state.seed).products
        if all(word in f"{product.name} {product.category}".casefold() for word in words)
    ]
    return _listing(state, request, f"Search: {query}" if query else "All products", products)


def _listing(state: ShopState, request: SiteRequest, title: str, products: Sequence[Product]) -> SiteResponse:
    sort = request.query.get("sort", "")
    ordered = _sort_products(products, sort)
    pages = max(1, -(-len(ordered) // _ON_A_PAGE))
    number = parse_whole(request.query.get("page", "1"), 1, pages) or 1

    def address(**changes: str | int) -> str:
        query = {"q": request.query.get("q", ""), "sort": sort, **changes}
        return f"{request.path}?" + urlencode({key: value for key, value in query.items() if value})

    return PAGES.page(
        "listing",
        state,
        title=title,
        products=ordered[(number - 1) * _ON_A_PAGE : number * _ON_A_PAGE],
        total=len(ordered),
        sorts=[(label, address(sort=key), key == sort) for key, label in _SORTS.items()],
        pages=[(at, address(page=at), at == number) for at in range(1, pages + 1)],
        query=request.query.get("q", ""),
    )


def _sort_products(products: Sequence[Product], sort: str) -> list[Product]:
    if sort == "rating":
        return sorted(products, key=lambda product: -product.tenths)
    if sort in ("price", "-price"):
        return sorted(products, key=lambda product: product.cents, reverse=sort == "-price")
    return list(products)


@PAGES.get("/product/{id}")
def _product(state: ShopState, request: SiteRequest) -> SiteResponse:
    return PAGES.page("product", state, product=require(catalogue(state.seed).find(request.parts["id"])))


@PAGES.post("/cart/add")
def _add(state: ShopState, request: SiteRequest) -> SiteResponse:
    product = require(catalogue(state.seed).find(request.field("product")))
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
        return PAGES.page("product", state, product=product, errors=[error])
    if line is None:
        state.cart.append(CartLine(product.id, request.field("colour"), count))
    else:
        line.count, line.colour = had + count, request.field("colour")
    return redirect("/cart")


@PAGES.post("/cart/update")
def _update(state: ShopState, request: SiteRequest) -> SiteResponse:
    line = require(state.line(request.field("product")))
    product = require(catalogue(state.seed).find(line.product))
    most = min(_MOST_OF_ONE, product.stock)
    count = parse_whole(request.field("count"), 0, most)
    if count is None:
        error = f"The quantity of {product.name} is a whole number from 0 to {most}."
        return PAGES.page("cart", state, errors=[error])
    if count == 0 or request.field("do") == "remove":
        state.cart.remove(line)
    else:
        line.count = count
    return redirect("/cart")


@PAGES.post("/cart/coupon")
def _coupon(state: ShopState, request: SiteRequest) -> SiteResponse:
    code = request.field("code").upper()
    if code != catalogue(state.seed).coupon:
        return PAGES.page("cart", state, errors=[f"There is no coupon {code!r}."])
    state.coupon = code
    return redirect("/cart")


@PAGES.get("/checkout")
def _checkout(state: ShopState, request: SiteRequest) -> SiteResponse:
    if not state.cart:
        return message_page("Nothing to order", "Your cart is empty.", 409)
    return PAGES.page("checkout", state, given=dict.fromkeys((*_ADDRESS, "delivery"), ""))


@PAGES.post("/checkout")
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
        return PAGES.page("checkout", state, given=given, errors=errors)
    number = str(80000 + (state.seed * 7 + len(state.orders) * 13) % 10000)
    cents = state.total() + _DELIVERIES[given["delivery"]]
    state.orders.append(PlacedOrder(number, tuple(state.cart), state.coupon, cents=cents, **given))
    state.cart, state.coupon = [], ""
    return redirect(f"/order/{number}")


@PAGES.get("/order/{number}")
def _order(state: ShopState, request: SiteRequest) -> SiteResponse:
    matches = (order for order in state.orders if order.number == request.parts["number"])
    return PAGES.page("order", state, order=require(next(matches, None)))
