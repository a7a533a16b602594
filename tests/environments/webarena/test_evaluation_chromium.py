"""The locators of real tasks on a real page: what WebArena's authors wrote must work as it is."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Error, Page

from tests.environments.webarena.webarena_pages import FakePages, pages, target
from tests.own_pages import chromium  # noqa: F401  a fixture
from webgym_cli.environments.webarena.evaluation import grade
from webgym_cli.environments.webarena.evaluation_browser import PageScriptError

pytestmark = pytest.mark.browser

CONTENT = """<!doctype html><title>Shop</title>
<form><input name="product[price]" value="16.99"><input type="checkbox" title="Mail" checked>
<select name="status"><option>Off</option><option selected>On</option></select></form>
<p class="note">Salt &amp; <b>pepper</b></p><p class="last"><a href="/a">A</a><img src="/b.png"></p>
<details><summary>More</summary><i id="hidden">inside</i></details>
"""


class RealPages(FakePages):
    """The page of a browser."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page

    async def html(self):
        return await self.page.content()

    async def run(self, function):
        try:
            return await self.page.evaluate(function)
        except Error:
            raise PageScriptError from None


@pytest.fixture
async def page(chromium) -> AsyncIterator[Page]:  # noqa: F811
    result = await chromium.new_page()
    await result.set_content(CONTENT)
    yield result
    await result.close()


FOUND = {
    "a value, its bracket left open": ("document.querySelector('[name=\"product[price]\"').value", "16.99"),
    "a number": ("document.querySelector('[name=\"status\"]').selectedIndex", "1"),
    "a truth as a text": ("document.querySelector('[title=\"Mail\"').checked.toString()", "true"),
    "a truth": ("document.querySelector('[title=\"Mail\"').checked", "true"),
    "text": ("document.querySelector('.note').outerText", "salt & pepper"),
    "one of several": ("document.querySelectorAll('p > *')[1].outerText", "A"),
    "an attribute": ("document.querySelector('.last').firstElementChild.getAttribute('href')", "/a"),
    "a sum": (
        "document.querySelector('.note').outerText + (document.querySelector('.no')?.outerText || '')",
        "salt & pepper",
    ),
    "a list": (
        "[...document.querySelector('.last').querySelectorAll('[href],[src]')]"
        ".map(elem => elem.getAttribute('href') || elem.getAttribute('src')).join(' ')",
        "/a /b.png",
    ),
    "a function": ("lambda:() => document.title", "shop"),
}
NOWHERE = {
    "no such element": "document.querySelector('.no').outerText",
    "nothing": "document.querySelector('.no')",
    "no attribute": "document.querySelector('.note').getAttribute('href')",
    "a statement": "document.title; 'x'",
    "a selector that is none": "document.querySelector('[[').value",
}


async def rewarded(page, *targets):
    parts = await grade(pages(*targets), intent="", answer=None, pages=RealPages(page), judge=None)
    return float(all(parts.values()))


async def test_what_locators_find(page):
    rewards = {
        name: await rewarded(page, target("last", locator, exact_match=text)) for name, (locator, text) in FOUND.items()
    }
    assert rewards == dict.fromkeys(FOUND, 1.0)


async def test_a_page_without_what_is_looked_for_scores_0(page):
    rewards = {
        name: await rewarded(page, target("last", locator, must_exclude="x")) for name, locator in NOWHERE.items()
    }
    assert rewards == dict.fromkeys(NOWHERE, 0.0)


async def test_a_whole_page(page):
    assert await rewarded(page, target(must_include=["Salt & <b>pepper</b>", "inside"])) == 1.0
    assert await rewarded(page, target(must_include=["sugar |OR| vinegar"])) == 0.0


async def test_a_preparation_opens_what_is_closed(page):
    locator = "document.querySelector('details').open"
    opened = ["document.querySelector('summary').click()"]
    assert await rewarded(page, target("last", locator, exact_match="true")) == 0.0
    assert await rewarded(page, target("last", locator, opened, exact_match="true")) == 1.0
