"""What a page's events say of it."""

import asyncio

import pytest

from webgym_cli.environments.browser.page_activity import PageActivity

MAIN = "frame-1"


@pytest.fixture
def traffic():
    return PageActivity(MAIN)


def asks(traffic, number, kind="XHR"):
    traffic.note("Network.requestWillBeSent", {"requestId": str(number), "type": kind})


def test_a_navigation_from_its_wish_to_its_document(traffic):
    assert not traffic.navigating and not traffic.busy
    traffic.note("Page.frameRequestedNavigation", {"frameId": MAIN, "disposition": "currentTab"})
    assert traffic.navigating and traffic.busy
    # What Chrome tells in between says nothing of the end.
    for event in ("Page.frameScheduledNavigation", "Page.frameStartedLoading", "Page.frameClearedScheduledNavigation"):
        traffic.note(event, {"frameId": MAIN})
        assert traffic.navigating
    traffic.note("Page.frameStartedNavigating", {"frameId": MAIN, "navigationType": "differentDocument"})
    traffic.note("Page.frameNavigated", {"frame": {"id": MAIN}})
    assert not traffic.navigating


@pytest.mark.parametrize("end", ["Page.frameStoppedLoading", "stop"])
def test_a_navigation_may_come_to_nothing(traffic, end):
    traffic.note("Page.frameStartedNavigating", {"frameId": MAIN, "navigationType": "reload"})
    assert traffic.navigating
    traffic.stop() if end == "stop" else traffic.note(end, {"frameId": MAIN})
    assert not traffic.navigating


@pytest.mark.parametrize(
    ("event", "params"),
    [
        ("Page.frameRequestedNavigation", {"frameId": "other", "disposition": "currentTab"}),
        *(("Page.frameRequestedNavigation", {"frameId": MAIN, "disposition": way}) for way in ("newTab", "download")),
        *(
            ("Page.frameStartedNavigating", {"frameId": MAIN, "navigationType": kind})
            for kind in ("sameDocument", "historySameDocument")
        ),
        ("Page.loadEventFired", {"timestamp": 1}),
        ("Network.dataReceived", {"requestId": "1"}),
    ],
)
def test_what_is_no_navigation_of_the_page(traffic, event, params):
    traffic.note(event, params)
    assert not traffic.busy


def test_requests_that_change_what_is_seen_are_awaited_and_no_others(traffic):
    for kind in ("Image", "Media", "Ping", "WebSocket", "EventSource"):
        asks(traffic, 1, kind)
        assert not traffic.busy
    for kind in ("Document", "XHR", "Fetch", "Script", "Stylesheet"):
        asks(traffic, 1, kind)
        asks(traffic, 2, kind)
        assert traffic.busy and not traffic.navigating
        traffic.note("Network.loadingFinished", {"requestId": "1"})
        assert traffic.busy
        traffic.note("Network.loadingFailed", {"requestId": "2"})
        assert not traffic.busy


def test_a_flood_of_requests_is_followed_in_part(traffic):
    for number in range(5000):
        asks(traffic, number)
    for number in range(500):
        traffic.note("Network.loadingFinished", {"requestId": str(number)})
    assert not traffic.busy


def test_a_mark_and_a_new_document_forget_requests(traffic):
    asks(traffic, 1)
    traffic.mark()
    assert not traffic.busy
    asks(traffic, 2)
    traffic.note("Page.frameNavigated", {"frame": {"id": MAIN}})
    assert not traffic.busy
    asks(traffic, 3)
    traffic.note("Page.frameNavigated", {"frame": {"id": "other"}})
    assert traffic.busy


async def test_waiting_ends_with_the_next_event_or_in_time(traffic):
    waiting = asyncio.ensure_future(traffic.change(60))
    await asyncio.sleep(0)
    asks(traffic, 1)
    await asyncio.wait_for(waiting, 5)
    await traffic.change(0.01)


LEAVING = {"frameId": MAIN, "navigationType": "differentDocument"}


@pytest.mark.parametrize(
    ("holds", "event", "params"),
    [
        (lambda traffic: traffic.navigating, "Page.frameStartedNavigating", LEAVING),
        (lambda traffic: traffic.documents > 0, "Page.frameNavigated", {"frame": {"id": MAIN}}),
    ],
    ids=["leaving", "a further document"],
)
async def test_it_is_told_to_whoever_waits_for_it(traffic, holds, event, params):
    waiting = asyncio.ensure_future(traffic.until(lambda: holds(traffic)))
    await asyncio.sleep(0)
    asks(traffic, 1)
    traffic.note("Page.frameNavigated", {"frame": {"id": "other"}})
    await asyncio.sleep(0)
    assert not waiting.done()
    traffic.note(event, params)
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(traffic.until(lambda: holds(traffic)), 5)
