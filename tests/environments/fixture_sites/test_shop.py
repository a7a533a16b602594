import re

import pytest

from webgym_cli.environments.fixture_sites.shop import CATEGORIES, catalogue


def slug(name: str) -> str:
    return name.lower().replace(" ", "-")


async def put(visitor, name: str, count: str = "1", colour: str | None = None):
    product = catalogue(visitor.live.seed).find(slug(name))
    return await visitor.post("/cart/add", product=product.id, count=count, colour=colour or product.colours[0])


async def check_out(visitor, **changes: str):
    values = visitor.values
    form = {name: values[name] for name in ("name", "street", "postcode", "town")} | {"delivery": "express"} | changes
    return await visitor.post("/checkout", **form)


async def ordered(visit, seed: int = 4, *, count: str = "", colour: str = "", more: bool = False, **changes: str):
    visitor = visit("shop-order", seed)
    values = visitor.values
    await put(visitor, values["product"], count or values["count"], colour or values["colour"])
    if more:
        other = next(one for one in catalogue(seed).products if one.stock and one.name != values["product"])
        await put(visitor, other.name)
    page = await check_out(visitor, **changes)
    assert re.fullmatch(r"/order/8\d{4}", page.location)
    return visitor, page.location


async def test_an_order_with_everything_right_scores(visit):
    visitor, location = await ordered(visit)
    assert visitor.score("done") == visitor.score(None) == 1.0
    text = (await visitor.get(location)).text
    assert f"{visitor.values['count']} × {visitor.values['product']}" in text
    assert "Express delivery to " + visitor.values["street"] in text
    assert "Your cart is empty" in (await visitor.get("/cart")).text
    assert location.rpartition("/")[2] in (await visitor.get("/orders")).text


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"count": "1"}, "It has "),
        ({"more": True}, "It has nothing else."),
        ({"delivery": "standard"}, "The delivery is express."),
        ({"street": "Elsewhere 1"}, "It goes to "),
        ({"postcode": "00000"}, "It goes to "),
        ({"name": "Someone Else"}, "It goes to "),
    ],
)
async def test_a_near_miss_is_named(visit, wrong, fact):
    visitor, _ = await ordered(visit, **wrong)
    score, reason = visitor.live.score("done")
    assert score == 0.0
    assert reason.startswith("not met: ") and fact in reason


async def test_the_wrong_colour_and_a_second_order_are_near_misses_and_the_spelling_of_an_address_none(visit):
    wanted = visit("shop-order", 4).values
    colours = catalogue(4).find(slug(wanted["product"])).colours
    visitor, _ = await ordered(visit, colour=next(colour for colour in colours if colour != wanted["colour"]))
    assert visitor.live.score(None)[1] == f"not met: Their colour is {wanted['colour']}."
    visitor, _ = await ordered(visit, name=wanted["name"].upper(), street=wanted["street"].replace(" ", "  ") + ",")
    assert visitor.score() == 1.0
    await put(visitor, wanted["product"])
    await check_out(visitor)
    assert visitor.score() == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "Please fill in your name."),
        ({"street": ""}, "Please fill in your street."),
        ({"postcode": "1234"}, "A postcode has five digits."),
        ({"postcode": "abcde"}, "A postcode has five digits."),
        ({"delivery": "drone"}, "Please choose a delivery."),
    ],
)
async def test_a_bad_address_is_refused_and_what_was_typed_stays(visit, changes, message):
    visitor = visit("shop-order", 4)
    await put(visitor, visitor.values["product"])
    page = await check_out(visitor, **changes)
    assert page.status == 422
    assert message in page.text and f'value="{visitor.values["town"]}"' in page.body
    assert not visitor.state.orders


IMPOSSIBLE = ["0", "-1", "21", "1.5", "", "many", "٣", "99999999999999999999"]


@pytest.mark.parametrize(
    ("count", "colour", "message"),
    [
        *((count, None, "The quantity is a whole number from 1 to 20.") for count in IMPOSSIBLE),
        ("1", "Plaid", "Please choose one of the colours."),
    ],
)
async def test_an_impossible_quantity_or_colour_is_refused(visit, count, colour, message):
    visitor = visit("shop-cart", 1)
    page = await put(visitor, visitor.values["product"], count, colour)
    assert page.status == 422 and message in page.text
    assert not visitor.state.cart


async def test_nobody_buys_more_than_there_is(visit):
    visitor = visit("shop-cart", 1)
    few = min((one for one in catalogue(1).products if one.stock), key=lambda one: one.stock)
    product = next(one for one in catalogue(1).products if not one.stock)
    assert (await put(visitor, few.name, str(few.stock))).location == "/cart"
    assert f"Only {few.stock} pieces are left." in (await put(visitor, few.name)).text
    assert "sold out" in (await put(visitor, product.name)).text
    assert [line.count for line in visitor.state.cart] == [few.stock]


async def test_sorting_orders_and_pages_split_without_loss(visit):
    visitor = visit("shop-cheapest", 2)
    category = next(iter(CATEGORIES))
    prices = [one.cents for one in catalogue(2).of(category)]
    shown = re.findall(r"<div>€([\d,.]+)</div>", (await visitor.get(f"/category/{category.lower()}?sort=price")).body)
    assert [int(price.replace(",", "").replace(".", "")) for price in shown] == sorted(prices)
    names = []
    for number in range(1, 5):
        page = await visitor.get(f"/search?q=&sort=rating&page={number}")
        names += re.findall(r'<a href="/product/[^"]+">([^<]+)</a>', page.body)
    assert sorted(names) == sorted(one.name for one in catalogue(2).products)


async def test_the_search_wants_all_words_in_any_case(visit):
    visitor = visit("shop-cart", 2)
    name = visitor.values["product"]
    response = await visitor.get(f"/search?q={name.upper().replace(' ', '+')}")
    assert "1 products" in response.text and name in response.text
    assert "Nothing was found." in (await visitor.get("/search?q=nonsense")).text


async def test_the_coupon_works_in_any_case_and_others_do_not(visit):
    visitor = visit("shop-tidy-cart", 3)
    result = catalogue(3)
    assert "There is no coupon &#39;FREE&#39;" in (await visitor.post("/cart/coupon", code="free")).body
    assert (await visitor.post("/cart/coupon", code=result.coupon.lower())).location == "/cart"
    assert visitor.state.discount() == visitor.state.subtotal() * result.percent // 100 > 0


async def test_tidying_the_cart(visit):
    visitor = visit("shop-tidy-cart", 3)
    values = visitor.values
    await visitor.post("/cart/update", product=slug(values["gone"]), count="1", do="remove")
    assert visitor.score() == 0.0
    await visitor.post("/cart/update", product=slug(values["changed"]), count=values["count"], do="set")
    assert visitor.score() == 1.0
    assert (await visitor.post("/cart/update", product=slug(values["kept"]), count="x", do="set")).status == 422
    await visitor.post("/cart/update", product=slug(values["kept"]), count="0", do="set")
    assert visitor.score() == 0.0


async def test_reviews_and_what_is_typed_are_text_whatever_they_look_like(visit):
    visitor = visit("shop-cart", 0)
    bodies = [(await visitor.get(f"/product/{one.id}")).body for one in catalogue(0).products]
    bodies.append((await visitor.get("/search?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")).body)
    assert "&#34;&gt;&lt;script&gt;" in bodies[-1]
    for text in ("&lt;b&gt;sturdy&lt;/b&gt;", "&lt;script&gt;"):
        assert any(text in body for body in bodies[:-1])
    assert not any("<b>sturdy" in body or "<script>" in body for body in bodies)


async def test_the_directory_lists_the_products_of_a_category(visit):
    visitor = visit("shop-order", 4)
    assert (await visitor.get("/directory")).text.endswith(" ".join(["Directory", *CATEGORIES]))
    page = await visitor.get("/directory/desk")
    assert page.text.startswith("Desk – Fernhill Goods Desk ")
    assert all(product.name in page.text for product in catalogue(4).of("Desk"))
    assert (await visitor.get("/directory/chairs")).status == 404
