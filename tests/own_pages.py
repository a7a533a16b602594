"""A Chromium of Playwright's own, for tests that look at pages of ours."""

import pytest_asyncio

from tests.executable import needs_chromium


@pytest_asyncio.fixture(scope="session")
async def chromium():
    """A browser; skips the test where there is none."""
    from playwright.async_api import async_playwright

    executable = needs_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture
async def view(chromium):
    """A tab on an offline telephone; what it asked for and what went wrong."""
    context = await chromium.new_context(viewport={"width": 375, "height": 700}, offline=True)
    tab = await context.new_page()
    tab.requests, tab.errors = [], []
    tab.on("request", lambda request: tab.requests.append(request.url[:60]))
    tab.on("console", lambda message: tab.errors.append(message.text))
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.on("dialog", lambda dialog: tab.errors.append(dialog.message))
    yield tab
    await context.close()


def assert_complete(tab):
    """The page loaded nothing else, and nothing went wrong in it."""
    assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
    assert tab.errors == []
