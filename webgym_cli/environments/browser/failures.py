"""What goes wrong at the browser's boundary, and which of our failures it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from webgym_cli.environments.browser.cdp import CDPError
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

CRASH_SIGNS = ("crashed", "has been closed", "connection closed", "target closed", "browser closed", "disconnected")
# How the browser says that the page was replaced while it was asked something.
LOST_CONTEXT = (
    "execution context was destroyed",
    "cannot find context with specified id",
    "cannot find default execution context",
    "frame was detached",
    "navigated or closed",
)
# How Chrome says that a page closed before it has told of the closing itself.
SESSION_GONE = ("session with given id not found", "no session with given id")
# How it says that this page closed; another one of the context may be current now.
PAGE_GONE = (*SESSION_GONE, "target closed", "session closed", "not attached")

T = TypeVar("T")


class ScriptError(Exception):
    """A script of ours threw in the page."""


def to_boundary_error(error: Exception, doing: str, *, navigation: bool = False) -> BoundaryError:
    """Return an exception of Playwright, of a channel or of a script as one of ours."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as PlaywrightTimeout

    text = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    message = f"{doing} failed: {text}"
    if not isinstance(error, ScriptError) and has_sign(error, (*CRASH_SIGNS, *PAGE_GONE)):
        return BoundaryError(FailureKind.BROWSER_CRASHED, message)
    if isinstance(error, PlaywrightTimeout):
        return BoundaryError(FailureKind.PAGE_TIMEOUT, message)
    if navigation and isinstance(error, Error | CDPError):
        return BoundaryError(FailureKind.NAVIGATION_FAILED, message)
    return BoundaryError(FailureKind.ENVIRONMENT_ERROR, message)


def has_sign(error: Exception, signs: tuple[str, ...]) -> bool:
    """Tell whether an error's text holds one of these signs."""
    return any(sign in str(error).lower() for sign in signs)


async def attempt(doing: Awaitable[T], seconds: float) -> T | None:
    """Return what comes of something asked of the browser; None where it fails, or takes longer than this."""
    try:
        async with asyncio.timeout(seconds):
            return await doing
    except Exception:  # noqa: BLE001  Playwright's boundary: what was asked is gone, or hangs
        return None


async def close_quietly(close: Callable[[], Awaitable[object]], seconds: float = 5.0) -> None:
    """Close something of the browser's within a deadline, whatever state its browser is in."""
    await attempt(close(), seconds)
