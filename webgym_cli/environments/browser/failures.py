"""Maps exceptions of the browser boundary to webgym's failure types."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from webgym_cli.environments.browser.cdp import CDPError
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.text import first_line

CRASH_SIGNS = ("crashed", "has been closed", "connection closed", "target closed", "browser closed", "disconnected")
# Error texts for a page that was replaced during a call.
LOST_CONTEXT = (
    "execution context was destroyed",
    "cannot find context with specified id",
    "cannot find default execution context",
    "frame was detached",
    "navigated or closed",
)
# Error texts of Chrome and of Playwright's driver for a closed page whose close event has not arrived yet.
SESSION_GONE = (
    "session with given id not found",
    "no session with given id",
    "no target with given id",
    "no object with guid",
    "page, context or browser has been closed",
)
# Error texts for a closed page; another page of the context may be current now.
PAGE_GONE = (*SESSION_GONE, "target closed", "session closed", "not attached")

# Chrome's error texts for a network, or a proxy, that is down for all pages.
OFFLINE = (
    "err_internet_disconnected",
    "err_network_changed",
    "err_network_io_suspended",
    "err_network_access_denied",
    "err_proxy_connection_failed",
)

T = TypeVar("T")


class ScriptError(Exception):
    """An injected script threw an exception in the page."""


def to_boundary_error(error: Exception, doing: str, *, navigation: bool = False) -> BoundaryError:
    """Convert an exception of Playwright, CDP or an injected script to a `BoundaryError`."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as PlaywrightTimeout

    message = f"{doing} failed: {first_line(error)[:300]}"
    if not isinstance(error, ScriptError) and has_sign(error, (*CRASH_SIGNS, *PAGE_GONE)):
        return BoundaryError(FailureKind.BROWSER_CRASHED, message)
    if isinstance(error, PlaywrightTimeout):
        return BoundaryError(FailureKind.PAGE_TIMEOUT, message)
    if navigation and isinstance(error, Error | CDPError):
        return BoundaryError(FailureKind.NAVIGATION_FAILED, message)
    kind = FailureKind.PAGE_ERROR if isinstance(error, ScriptError) else FailureKind.ENVIRONMENT_ERROR
    return BoundaryError(kind, message)


def has_sign(error: Exception, signs: tuple[str, ...]) -> bool:
    """Whether an error's text contains one of these substrings."""
    return any(sign in str(error).lower() for sign in signs)


@contextmanager
def reading_page() -> Iterator[None]:
    """Convert errors in the results of our scripts to `PAGE_ERROR`: the page has altered what the scripts use."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"the page can't be read: {type(error).__name__}"
        raise BoundaryError(FailureKind.PAGE_ERROR, reason) from error


async def attempt(doing: Awaitable[T], seconds: float) -> T | None:
    """Return the result of a browser call; None if it fails or exceeds the timeout in seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await doing
    except Exception:  # noqa: BLE001  Playwright's boundary: what was asked is gone, or hangs
        return None


async def close_quietly(close: Callable[[], Awaitable[object]], seconds: float = 5.0) -> None:
    """Call `close` within a deadline, ignoring errors, in any state of the browser."""
    await attempt(close(), seconds)
