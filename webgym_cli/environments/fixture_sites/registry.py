"""The sites by host name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from webgym_cli.environments.fixture_hosts import HOSTS as HOSTS
from webgym_cli.environments.fixture_hosts import LAB_HOSTS as LAB_HOSTS
from webgym_cli.environments.fixture_hosts import SITE_HOSTS as SITE_HOSTS

if TYPE_CHECKING:
    from webgym_cli.environments.fixture_sites.web import SitePages


def find_site(host: str) -> SitePages[Any]:
    """Return the site of a host. Raises `KeyError` for an unknown one."""
    return _load_sites()[host]


@cache
def _load_sites() -> dict[str, SitePages[Any]]:
    from webgym_cli.environments.fixture_sites import mail_pages, shop_pages

    return dict(zip(SITE_HOSTS, (shop_pages.PAGES, mail_pages.PAGES), strict=True))
