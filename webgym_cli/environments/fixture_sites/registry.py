"""The sites by their host names."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webgym_cli.environments.fixture_sites.web import SitePages

# The sites that have episodes.
SITE_HOSTS = ("shop.test", "mail.test", "wiki.test", "booking.test")
# The laboratory's; `other.test` has only what `lab.test` frames from another origin.
LAB_HOSTS = ("lab.test", "other.test")
# All host names that are served. `.test` is reserved (RFC 6761): a browser has to map them to the server.
HOSTS = (*SITE_HOSTS, *LAB_HOSTS)


def find_site(host: str) -> SitePages[Any]:
    """Return the site of a host. Raises `KeyError` when there is none."""
    return _load_sites()[host]


@cache
def _load_sites() -> dict[str, SitePages[Any]]:
    from webgym_cli.environments.fixture_sites import booking_pages, mail_pages, shop_pages, wiki_pages

    sites = (shop_pages.PAGES, mail_pages.PAGES, wiki_pages.PAGES, booking_pages.PAGES)
    return dict(zip(SITE_HOSTS, sites, strict=True))
