"""The sites by host name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webgym_cli.environments.fixture_sites.web import SitePages

# Sites with episodes.
SITE_HOSTS = ("shop.test", "mail.test")
# Hosts of the laboratory; `other.test` serves only frames of `lab.test` from another origin.
LAB_HOSTS = ("lab.test", "other.test")
# All served host names. `.test` is reserved (RFC 6761), so the browser must map them to the server.
HOSTS = (*SITE_HOSTS, *LAB_HOSTS)


def find_site(host: str) -> SitePages[Any]:
    """Return the site of a host. Raises `KeyError` for an unknown one."""
    return _load_sites()[host]


@cache
def _load_sites() -> dict[str, SitePages[Any]]:
    from webgym_cli.environments.fixture_sites import mail_pages, shop_pages

    return dict(zip(SITE_HOSTS, (shop_pages.PAGES, mail_pages.PAGES), strict=True))
