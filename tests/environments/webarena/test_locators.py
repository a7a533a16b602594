import pytest

from tests.environments.webarena.webarena_pages import FORUM, SHOP, target
from tests.tables import each
from webgym_cli.environments.webarena.locators import (
    BadLocationError,
    ContentLocation,
    HelperCall,
    HelperName,
    parse_location,
    post_url,
)

ROLE = HelperName.MEMBER_ROLE


@each(
    ("given", "place"),
    [
        (target(must_include="x"), ContentLocation(None, None, ())),
        (target(f"{SHOP}/cart", " ", must_include="x"), ContentLocation(f"{SHOP}/cart", None, ())),
        (
            target("last", "document.querySelector('[name=\"q\"').value", must_include="x"),
            ContentLocation(None, "() => (document.querySelector('[name=\"q\"').value)", ()),
        ),
        (
            target("last", "[...document.links].map(link => link.href).join(' ');", must_include="x"),
            ContentLocation(None, "() => ([...document.links].map(link => link.href).join(' '))", ()),
        ),
        (
            target("last", "document.title", ["document.body.click()"], must_include="x"),
            ContentLocation(None, "() => (document.title)", ("() => { document.body.click() }",)),
        ),
        (
            target("func:shopping_get_latest_order_url()", "", must_include="x"),
            ContentLocation(HelperCall(HelperName.LATEST_ORDER), None, ()),
        ),
        (
            target("func:reddit_get_post_url('__last_url__')", "", must_include="x"),
            ContentLocation(HelperCall(HelperName.POST_URL, "__last_url__"), None, ()),
        ),
        (
            target("last", "func:gitlab_get_project_memeber_role(__page__, 'yjlou')", must_include="x"),
            ContentLocation(None, HelperCall(ROLE, "yjlou"), ()),
        ),
        (
            target("last", 'func:shopping_get_sku_latest_review_rating("B00")', must_include="x"),
            ContentLocation(None, HelperCall(HelperName.REVIEW_RATING, "B00"), ()),
        ),
    ],
)
def test_the_forms_that_tasks_use(given, place):
    assert parse_location(given) == place


def test_the_prefix_of_a_function_is_taken_off_and_not_its_letters():
    place = parse_location(target("last", "lambda:(a => document.title)()", must_include="x"))
    assert place.locator == "(a => document.title)()"
    assert parse_location(target("last", "lambda: abab => 1", must_include="x")).locator == "abab => 1"


@each(
    ("url", "locator", "reason"),
    [
        ("first", "", "url: 'first' is neither"),
        ("__SHOP__/cart", "", "url: '__SHOP__/cart' is neither"),
        ("javascript:alert(1)", "", "url: 'javascript:alert"),
        ("func:shopping_get_sku_latest_review_author('B00')", "", "gives no address"),
        ("last", "func:shopping_get_latest_order_url()", "gives an address, no content"),
        ("last", "window.x", r"locator: 'window.x' is none of: empty, document\., "),
        ("last", "//div[@id='x']", "locator: .//div"),
        ("last", "func:__import__('os').system('true')", "there is no such helper; there are: shopping_get_latest"),
        ("last", "func:open", "no function call"),
        ("func:shopping_get_latest_order_url", "", "no function call"),
        ("func:shopping_get_latest_order_url('x')", "", "it takes nothing"),
        ("func:shopping_get_latest_order_url() + 'x'", "", "it takes nothing"),
        ("func:reddit_get_post_url(__last_url__)", "", "it takes a text"),
        ("func:reddit_get_post_url(url='x')", "", "it takes a text"),
        ("last", "func:gitlab_get_project_memeber_role('yjlou')", "it takes __page__ and a text"),
        ("last", "func:gitlab_get_project_memeber_role(page, 'yjlou')", "it takes __page__ and a text"),
        ("last", "func:gitlab_get_project_memeber_role(__page__, ['yjlou'])", "expected a text in quotes"),
    ],
)
def test_an_unknown_form_is_named(url, locator, reason):
    with pytest.raises(BadLocationError, match=reason):
        parse_location(target(url, locator, must_include="x"))


@each(
    ("address", "post"),
    [
        (f"{FORUM}/f/books/123/a-title", f"{FORUM}/f/books/123/"),
        (f"{FORUM}/f/books/123/a-title/-/comment/9?x=1#c", f"{FORUM}/f/books/123/"),
        (f"{FORUM}/f/books/123", f"{FORUM}/f/books/123/"),
        (f"{FORUM}/f/books", f"{FORUM}/f/books"),
        (f"{FORUM}/f/books/new", f"{FORUM}/f/books/new"),
        (f"{FORUM}/submit/books", f"{FORUM}/submit/books"),
        (f"{FORUM}/", f"{FORUM}/"),
        ("about:blank", "about:blank"),
    ],
)
def test_the_post_of_a_page(address, post):
    assert post_url(address) == post
