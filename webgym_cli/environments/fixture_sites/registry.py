"""The sites by their host names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from webgym_cli.environments.fixture_sites.web import SiteRequest, SiteResponse

# The sites that have episodes.
SITE_HOSTS = ("shop.test", "mail.test", "wiki.test", "booking.test")


@dataclass(frozen=True, slots=True)
class FixtureSite:
    """One site: what it starts with and how it answers."""

    host: str
    new_state: Callable[[int], Any]
    """Makes the state that a seed starts with."""
    answer: Callable[[Any, SiteRequest], SiteResponse]
    """Answers a visit; a POST may change the state."""


def find_site(host: str) -> FixtureSite:
    """Return the site of a host. Raises `KeyError` when there is none."""
    return _load_sites()[host]


@cache
def _load_sites() -> dict[str, FixtureSite]:
    from webgym_cli.environments.fixture_sites import (
        booking,
        booking_pages,
        mail,
        mail_pages,
        shop,
        shop_pages,
        wiki,
        wiki_pages,
    )

    return {
        "shop.test": FixtureSite("shop.test", shop.ShopState, shop_pages.answer),
        "mail.test": FixtureSite("mail.test", mail.MailState, mail_pages.answer),
        "wiki.test": FixtureSite("wiki.test", wiki.WikiState, wiki_pages.answer),
        "booking.test": FixtureSite("booking.test", booking.new_booking_state, booking_pages.answer),
    }
