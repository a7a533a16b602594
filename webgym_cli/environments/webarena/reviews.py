"""Newest review of a product from the shop's API, which also returns reviews that are not yet approved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from webgym_cli.config.model import Settings
from webgym_cli.environments.sites.login import find_account, find_site, read_password
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.http_client import BoundedClient

_TOKEN = "/rest/default/V1/integration/admin/token"
_REVIEWS = "/rest/default/V1/products/{sku}/reviews"


@dataclass(frozen=True, slots=True)
class LatestReview:
    """A review for the evaluation."""

    author: str
    rating: str
    """0-100."""


async def fetch_newest_review(settings: Settings, sku: str) -> LatestReview | None:
    """Return the newest review of a SKU; None without one.

    Raises `BoundaryError` for an unexpected response, `UsageError` without the shop's admin account.
    """
    shop, limit = find_site(settings, WebArenaSite.SHOPPING).url, settings.browser.navigation_timeout
    _, known = find_account(settings, WebArenaSite.SHOPPING_ADMIN)
    login = {"username": known.account, "password": read_password(WebArenaSite.SHOPPING_ADMIN, known)}
    try:
        async with BoundedClient(timeout=limit, trust_env=False) as client:
            token = (await client.post(f"{shop}{_TOKEN}", json=login)).raise_for_status().json()
            address = f"{shop}{_REVIEWS.format(sku=quote(sku, safe=''))}"
            answer = await client.get(address, headers={"Authorization": f"Bearer {token}"})
        return None if answer.status_code == httpx.codes.NOT_FOUND else _newest(answer.raise_for_status().json())
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"{shop}: the reviews of {sku}: {reason}") from error


def _newest(reviews: Any) -> LatestReview | None:
    if not reviews:
        return None
    newest = max(reviews, key=lambda review: int(review["id"]))
    ratings = newest["ratings"]
    return LatestReview(str(newest["nickname"]), str(ratings[0]["percent"]) if ratings else "")
