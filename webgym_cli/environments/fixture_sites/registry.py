"""The sites by their host names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from webgym_cli.environments.fixture_sites.web import SiteRequest, SiteResponse

# The sites that have episodes.
SITE_HOSTS = ("shop.test", "mail.test", "wiki.test", "booking.test")


@dataclass(frozen=True, slots=True)
class FixtureSite:
    """One site: what it starts with and how it answers."""

    world: Callable[[int], Any]
    """Makes what a seed decides: the same for the same seed, and never changed."""
    new_state: Callable[[int], Any]
    """Makes the state that a seed starts with."""
    answer: Callable[[Any, SiteRequest], SiteResponse]
    """Answers a visit; a POST may change the state."""
    names: Mapping[str, Any]
    """What the expressions of the site's tasks can name."""


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
        "shop.test": FixtureSite(shop.catalogue, shop.ShopState, shop_pages.answer, vars(shop)),
        "mail.test": FixtureSite(mail.mailbox, mail.MailState, mail_pages.answer, vars(mail)),
        "wiki.test": FixtureSite(wiki.encyclopedia, wiki.WikiState, wiki_pages.answer, vars(wiki)),
        "booking.test": FixtureSite(booking.harbour, booking.new_booking_state, booking_pages.answer, vars(booking)),
    }
