"""Waits for the effects of an action (navigations, requests, popups, busy indicators), and arrival at a start page."""

from __future__ import annotations

import asyncio

from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.browser.failures import OFFLINE, attempt, has_sign
from webgym_cli.environments.browser.frames import WAIT_UNTIL_IDLE, WAITS_JS, wait_in_frames
from webgym_cli.environments.browser.page_activity import PageActivity
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError
from webgym_cli.jobs.workers import race
from webgym_cli.records.failure import FailureKind

_SPLASH_OF = f"{WAITS_JS}.splashOf"
_WAIT_UNTIL_IDLE = f"""async ([isStart, ...given]) => {{
  const {{ copied }} = await ({WAIT_UNTIL_IDLE})(given);
  return {{ splash: {_SPLASH_OF}(isStart), copied }};
}}"""
# Maximum number of successive popups followed after an action.
_POPUPS = 4
# A page with only a busy indicator is waited for this many times longer, once per episode; a start page without any
# control that may show some later is waited for as long as one that is loading.
_SPLASH_SHARES = {"busy": 4.0, "bare": 1.0}
_SPLASH_PAUSE = 0.2
# Poll interval in seconds.
_LOOK = 0.25
# Maximum number of rounds of waiting for traffic and then for a stable page.
_TURNS = 4


class PageSettler:
    """Waits for the pages of one episode."""

    def __init__(self, max_idle_wait: float) -> None:
        """`max_idle_wait`: seconds for a page that is still loading or moving."""
        self._max_idle_wait = max_idle_wait
        self._awaits_splash = self._is_start = True

    async def settle(self, session: BrowserSession) -> str | None:
        """Wait, within limits, for the effects of an action. Returns a message if a page has not loaded by then."""
        late = None
        for _ in range(_POPUPS):
            await session.wait_for_popups()
            page = session.page
            late = await self._settle_page(session)
            if session.page is page:
                break
        self._is_start = False
        return late

    async def _settle_page(self, session: BrowserSession) -> str | None:
        limit, clock = session.options.navigation_timeout, asyncio.get_running_loop()
        traffic = await session.traffic()
        arrives, end = clock.time() + limit, clock.time() + self._max_idle_wait
        for _ in range(_TURNS):
            while traffic.navigating and clock.time() < arrives:
                await traffic.change(arrives - clock.time())
                end = clock.time() + self._max_idle_wait
            if traffic.navigating:
                await session.stop_loading()
                return f"the page did not load within {limit:g} s"
            lives, splash = await self._wait_until_idle(session, traffic, max(0.0, end - clock.time()))
            was_busy = False
            while lives and traffic.busy and not traffic.navigating and clock.time() < end:
                was_busy = True
                await traffic.change(min(_LOOK, end - clock.time()))
            if splash and self._awaits_splash:
                await self._await_splash(session, splash)
                end = clock.time() + self._max_idle_wait
            elif lives and not traffic.navigating and (not was_busy or clock.time() >= end):
                break  # a response is rendered only once the page is stable again
            traffic = await session.traffic()
        return None

    async def _await_splash(self, session: BrowserSession, splash: str) -> None:
        """Wait for a page that shows nothing to act on. One that stays so is not waited for again."""
        clock = asyncio.get_running_loop()
        begun = clock.time()
        while splash and clock.time() < begun + self._max_idle_wait * _SPLASH_SHARES[splash]:
            await asyncio.sleep(_SPLASH_PAUSE)
            splash = str(await session.evaluate(_SPLASH_OF, self._is_start))
        self._is_start = False
        self._awaits_splash = splash != "busy"

    async def _wait_until_idle(
        self, session: BrowserSession, traffic: PageActivity, seconds: float
    ) -> tuple[bool, str]:
        """Wait until the page is idle. Returns whether it is alive, and what it waits for if it shows no control.

        A page that is being replaced runs no scripts.
        """
        given = [self._is_start, seconds * 1000, session.pages.clipboard]
        asking = session.evaluate_once(_WAIT_UNTIL_IDLE, given, seconds)
        waiting = asyncio.gather(asking, wait_in_frames(session, seconds))
        async with race(waiting, traffic.until(lambda: traffic.navigating)) as (waited, _):
            lives, seen = waited.result()[0] if waited.done() else (False, None)
            if seen is None:
                return lives, ""
            session.pages.clipboard = seen["copied"] or session.pages.clipboard
            return lives, seen["splash"] or ""


# HTTP statuses of a start page that mean the site blocks the browser.
_SHUT_OUT = (401, 403, 429, 451)
# Transient HTTP statuses, after which the episode can be retried.
_PASSING = (408, 425, 502, 503, 504)
# Error texts for an address that does not lead to a page.
_NO_PAGE = ("too_many_redirects", "download is starting")
# Seconds to wait for a blocked start page, since some sites check the browser first and then show the page.
_CHALLENGE_SECONDS = 5.0


async def arrive(session: BrowserSession, url: str, gate: EgressProxy, settler: PageSettler) -> None:
    """Open a start page. Raises the failure of its status unless the page is fine, or recovers."""
    if refusal := gate.rules.refuse_url(url):
        raise BoundaryError(FailureKind.ADDRESS_REFUSED, f"{refusal} (browser.private_hosts)")
    await open_address(session, url, gate)
    await settler.settle(session)
    await _check_blocked(session, gate, settler)


async def open_address(session: BrowserSession, url: str, gate: EgressProxy) -> None:
    """Open an address. Raises the failure that fits the cause if it does not open."""
    try:
        await session.goto(url)
    except BoundaryError as error:
        if refusal := gate.refusal(url):  # the browser only says that there is no tunnel
            raise BoundaryError(FailureKind.ADDRESS_REFUSED, f"{url}: {refusal}") from error
        if has_sign(error, OFFLINE):
            error.kind = FailureKind.NETWORK_UNAVAILABLE
        elif error.kind is FailureKind.PAGE_TIMEOUT:
            error.kind = FailureKind.NAVIGATION_FAILED  # it could not be reached; the timeout is the detail
        elif has_sign(error, _NO_PAGE):
            error.kind = FailureKind.START_PAGE_FAILED
        raise


async def _check_blocked(session: BrowserSession, gate: EgressProxy, settler: PageSettler) -> None:
    """Raise the failure for a start page's HTTP status. A blocked page gets `_CHALLENGE_SECONDS` to recover."""
    status = (await session.traffic()).status
    if status in _SHUT_OUT and not session.asks_credentials and not find_refusal(gate, session.url):
        traffic = await session.traffic()
        await attempt(traffic.until(lambda: traffic.navigating), _CHALLENGE_SECONDS)
        await settler.settle(session)
        status = (await session.traffic()).status
    if refusal := find_refusal(gate, session.url):
        unloaded = session.url.startswith("chrome-error:")
        kind = FailureKind.START_PAGE_FAILED if unloaded else FailureKind.ADDRESS_REFUSED
        raise BoundaryError(kind, f"{session.url}: {refusal}")
    if session.asks_credentials:
        detail = f"{session.url} asks for a user and a password (browser.http_credentials)"
        raise BoundaryError(FailureKind.AUTHENTICATION_REQUIRED, detail)
    if status in _SHUT_OUT:
        raise BoundaryError(FailureKind.SITE_BLOCKED, f"{session.url} answers with status {status}")
    if status >= 400:
        kind = FailureKind.NAVIGATION_FAILED if status in _PASSING else FailureKind.START_PAGE_FAILED
        silent = gate.find_silent(session.url)  # the proxy answered in the server's place
        raise BoundaryError(kind, silent or f"{session.url} answers with status {status}")


def find_refusal(gate: EgressProxy, url: str) -> str | None:
    """Return the reason why the page at an address could not be reached; None if it was."""
    return "the page can't be loaded" if url.startswith("chrome-error:") else gate.refusal(url)
