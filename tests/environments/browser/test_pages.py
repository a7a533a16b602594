"""Which page of a context is the current one, when the browser tells of a closing late."""

import asyncio
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from webgym_cli.environments.browser.page_connection import IsolatedWorlds
from webgym_cli.environments.browser.pages import PageTracker


class Told:
    """A context or a page of Playwright's that only hands on what it is told of."""

    def __init__(self):
        self.messages = {}
        self.url = "http://a/"

    def on(self, event, function):
        self.messages[event] = function

    def is_closed(self):
        return False


@pytest.fixture
def pages():
    """Two pages: an opener and its popup. Of neither was said that it closed."""
    context, opener, popup = Told(), Told(), Told()
    page_tracker = PageTracker(context, opener)
    context.messages["page"](popup)
    for page in (opener, popup):
        page_tracker.connections[page] = SimpleNamespace(is_open=True, traffic=SimpleNamespace(stop=lambda: None))
    return page_tracker


@pytest.mark.parametrize(
    "words",
    [
        *("Session with given id not found.", "No session with given id"),
        "CDPSession.send: Target page, context or browser has been closed",
    ],
)
def test_a_session_that_chrome_does_not_know_is_a_page_that_closed(pages, words):
    popup = pages.current
    assert pages.moved_on(popup, RuntimeError(words))
    assert pages.current is pages.tabs[0] is not popup
    assert not pages.moved_on(pages.tabs[0], RuntimeError(words))  # the last one stays, and gives the error its name


def test_what_a_navigation_may_say_too_is_no_closing_until_that_is_told(pages):
    popup = pages.current
    for words in ("Execution context was destroyed", "Target closed", "element is not visible"):
        assert not pages.moved_on(popup, RuntimeError(words))
        assert pages.current is popup
    popup.messages["close"](popup)
    assert pages.moved_on(popup, RuntimeError("Target closed"))


async def test_a_frame_that_does_not_answer_is_given_up_at_the_deadline():
    async def hang(frame):
        frames.append(frame)
        await asyncio.sleep(60)

    frames, context = [], SimpleNamespace(new_cdp_session=hang)
    worlds = IsolatedWorlds(Mock(), "main", "script", None, Mock())
    page = SimpleNamespace(frames=["main", "one", "two"], context=context)
    async with asyncio.timeout(30):
        with pytest.raises(LookupError, match="does not answer"):
            await worlds._attach("two", page, 0.05)
    assert frames == ["one", "two"]
