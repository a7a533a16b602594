"""The browser in which an episode ended, as seen by its evaluation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urljoin

import httpx

from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.actions import new_tab
from webgym_cli.environments.browser.failures import ScriptError
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.sites.accounts import Login, find_account, find_site, read_password
from webgym_cli.environments.webarena.locators import HelperName
from webgym_cli.errors import BoundaryError, SettingsError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.http_client import BoundedClient
from webgym_cli.util.optional import map_known

_ADDRESS = "() => document.location.href"
# Maximum length of a page's HTML, and of a text that a script returns, in characters.
LONGEST = 4_000_000
_HTML = f"() => (document.documentElement?.outerHTML ?? '').slice(0, {LONGEST})"
_ORDERS = "/sales/order/history/"
# The customer's orders are listed with the newest first.
_NEWEST_ORDER = "() => document.querySelector('a[href*=\"/sales/order/view/order_id/\"]')?.href ?? null"
_ROLE = """(name) => {
  const rows = Array.from(document.querySelectorAll("tr"));
  const cell = (row, label) => row.querySelector(`td[data-label="${label}"]`)?.innerText ?? "";
  const row = rows.find((row) => cell(row, "Account").split(/\\s+/).includes(`@${name}`));
  return row ? cell(row, "Max role").trim() : null;
}"""


class PageScriptError(Exception):
    """A page could not evaluate a script because its target is missing."""


class EvaluationBrowser:
    """The last page of the episode, and other pages in a tab of their own, so that unsubmitted input is kept."""

    def __init__(self, session: BrowserSession, arrive: Callable[[str], Awaitable[None]], settings: Settings) -> None:
        """`arrive`: opens a URL in the current tab and waits until it is loaded."""
        self._session = session
        self._arrive = arrive
        self._settings = settings
        self._apart = False

    async def address(self) -> str:
        """Return the URL of the open page."""
        # From the page itself: on a busy machine the driver reports navigations late.
        return str(await self._session.evaluate(_ADDRESS))

    async def open(self, url: str) -> None:
        """Open a URL in the extra tab. Raises `BoundaryError` if it can't be reached."""
        if not self._apart:
            await new_tab(self._session)
            self._apart = True
        await self._arrive(url)

    async def html(self) -> str:
        """Return the HTML of the whole page."""
        return str(await self._session.evaluate(_HTML))

    async def run(self, function: str) -> Any:
        """Return the result of a JavaScript function without arguments in the page. Raises `PageScriptError`."""
        try:
            value = await self._session.evaluate(function)
            return value[:LONGEST] if isinstance(value, str) else value
        except BoundaryError as error:
            if isinstance(error.__cause__, ScriptError):
                raise PageScriptError(str(error)) from error
            raise

    async def ask(self, helper: HelperName, argument: str | None) -> str | None:
        """Return the result of a helper on the site or page; None if there is none."""
        if helper is HelperName.LATEST_ORDER:
            await self.open(urljoin(f"{self._shop()}/", _ORDERS.lstrip("/")))
            return map_known(str, await self._session.evaluate(_NEWEST_ORDER))
        if helper is HelperName.MEMBER_ROLE:
            return map_known(str, await self._session.evaluate(_ROLE, argument))
        if helper in (HelperName.REVIEW_AUTHOR, HelperName.REVIEW_RATING):
            review = await fetch_newest_review(self._settings, argument or "")
            return review and review[helper is HelperName.REVIEW_RATING]
        raise ValueError(f"{helper} asks nothing of a page")

    def _shop(self) -> str:
        try:
            return find_site(self._settings, WebArenaSite.SHOPPING).url
        except SettingsError as error:
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, str(error)) from error


_TOKEN = "/rest/default/V1/integration/admin/token"
_REVIEWS = "/rest/default/V1/products/{sku}/reviews"


async def fetch_newest_review(settings: Settings, sku: str) -> tuple[str, str] | None:
    """Return author and rating (0-100) of the newest review of a SKU, approved or not yet; None without one.

    Raises `BoundaryError` for an unexpected response, `UsageError` without the shop's admin account.
    """
    site, limit = find_site(settings, WebArenaSite.SHOPPING), settings.browser.navigation_timeout
    shop, verify = site.url, not site.ignore_https_errors
    admin = Login(WebArenaSite.SHOPPING_ADMIN)
    _, known = find_account(settings, admin)
    login = {"username": known.account, "password": read_password(admin, known)}
    try:
        async with BoundedClient(timeout=limit, trust_env=False, verify=verify) as client:
            token = (await client.post(f"{shop}{_TOKEN}", json=login)).raise_for_status().json()
            address = f"{shop}{_REVIEWS.format(sku=quote(sku, safe=''))}"
            answer = await client.get(address, headers={"Authorization": f"Bearer {token}"})
        return None if answer.status_code == httpx.codes.NOT_FOUND else _newest(answer.raise_for_status().json())
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"{shop}: the reviews of {sku}: {reason}") from error


def _newest(reviews: Any) -> tuple[str, str] | None:
    if not reviews:
        return None
    newest = max(reviews, key=lambda review: int(review["id"]))
    ratings = newest["ratings"]
    return str(newest["nickname"]), str(ratings[0]["percent"]) if ratings else ""
