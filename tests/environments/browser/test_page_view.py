"""A check reads a page from sync and from async code, and can't act on it."""

import asyncio

import pytest
import pytest_asyncio

from tests.own_pages import chromium  # noqa: F401  a fixture
from webgym_cli.environments.browser.page_view import PageView

pytestmark = pytest.mark.browser


@pytest_asyncio.fixture
async def page(chromium):  # noqa: F811
    opened = await chromium.new_page()
    await opened.set_content("<title>Desk</title><ul><li>one<li>two</ul><input aria-label=Search value=x>")
    yield opened
    await opened.close()


async def test_a_check_reads_locators_and_scripts(page):
    view = PageView(page, asyncio.get_running_loop())

    def read():
        items = view.locator("li")
        texts = [one.text_content() for one in items.all()]
        both = items.filter(has_text="two").or_(view.get_by_role("heading")).count()
        result = items.nth(0).inner_text(), items.last.inner_text(), view.get_by_label("Search").input_value()
        return view.title(), view.url, items.count(), texts, both, result, view.evaluate("() => 6 * 7")

    seen = ("Desk", "about:blank", 2, ["one", "two"], 1, ("one", "two", "x"), 42)
    assert await asyncio.to_thread(read) == seen
    assert (await view.title(), await view.locator("li").count()) == ("Desk", 2)
    assert [await one.inner_text() for one in await view.locator("li").all()] == ["one", "two"]


@pytest.mark.parametrize("name", ["goto", "click", "fill", "keyboard", "context", "close", "set_content", "request"])
async def test_a_check_can_not_act(page, name):
    view = PageView(page, asyncio.get_running_loop())
    for target in (view, view.locator("li")):
        with pytest.raises(AttributeError, match="only reads"):
            getattr(target, name)
