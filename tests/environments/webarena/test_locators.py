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

ROLE, RATING = HelperName.MEMBER_ROLE, HelperName.REVIEW_RATING
LINKS = "[...document.links].map(link => link.href).join(' ')"
QUERY = "document.querySelector('[name=\"q\"').value"


@each(
    ("given", "url", "locator"),
    [
        (("last",), None, None),
        ((f"{SHOP}/cart", " "), f"{SHOP}/cart", None),
        (("last", QUERY), None, f"() => ({QUERY})"),
        (("last", f"{LINKS};"), None, f"() => ({LINKS})"),
        (("func:shopping_get_latest_order_url()", ""), HelperCall(HelperName.LATEST_ORDER), None),
        (("func:reddit_get_post_url('__last_url__')", ""), HelperCall(HelperName.POST_URL, "__last_url__"), None),
        (("last", "func:gitlab_get_project_memeber_role(__page__, 'yjlou')"), None, HelperCall(ROLE, "yjlou")),
        (("last", 'func:shopping_get_sku_latest_review_rating("B00")'), None, HelperCall(RATING, "B00")),
        # the prefix of a function is taken off, and not its letters
        (("last", "lambda:(a => document.title)()"), None, "(a => document.title)()"),
        (("last", "lambda: abab => 1"), None, "abab => 1"),
    ],
)
def test_the_forms_that_tasks_use(given, url, locator):
    assert parse_location(target(*given, must_include="x")) == ContentLocation(url, locator, ())
    prepared = target("last", "document.title", ["document.body.click()"], must_include="x")
    place = ContentLocation(None, "() => (document.title)", ("() => { document.body.click() }",))
    assert parse_location(prepared) == place


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
