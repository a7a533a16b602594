"""The sites by their host names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from webgym_cli.environments.fixture_sites.web import Reply, Visit

SITE_HOSTS = ("shop.test", "mail.test", "wiki.test", "booking.test")
"""The sites that have episodes."""


@dataclass(frozen=True, slots=True)
class Site:
    """One site: what it starts with and how it answers."""

    host: str
    fresh: Callable[[int], Any]
    """Makes the state that a seed starts with."""
    answer: Callable[[Any, Visit], Reply]
    """Answers a visit; a POST may change the state."""


def site(host: str) -> Site:
    """Return the site of a host. Raises `KeyError` when there is none."""
    return _sites()[host]


@cache
def _sites() -> dict[str, Site]:
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
        "shop.test": Site("shop.test", shop.ShopState, shop_pages.answer),
        "mail.test": Site("mail.test", mail.MailState, mail_pages.answer),
        "wiki.test": Site("wiki.test", wiki.WikiState, wiki_pages.answer),
        "booking.test": Site("booking.test", booking.fresh, booking_pages.answer),
    }
