"""Arrival at the start page of an episode: what it answers, and which failure that is."""

from __future__ import annotations

from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.browser.failures import OFFLINE, attempt, has_sign
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.web.settling import PageSettler
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

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
