"""A Chromium of Playwright's own, for tests that look at pages of ours."""

import pytest
import pytest_asyncio

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser.executable import find_chromium
from webgym_cli.errors import VenvError


@pytest_asyncio.fixture(scope="session")
async def chromium():
    """A browser; skips the test where there is none."""
    from playwright.async_api import async_playwright

    try:
        executable = find_chromium(BrowserSettings())
    except VenvError as error:
        pytest.skip(str(error))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(executable), args=["--no-sandbox"])
        yield browser
        await browser.close()
