"""Sites of URLs, by which failures are counted and sites are blocked, and detection of loopback hosts."""

from __future__ import annotations

import ipaddress
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webgym_cli.util.optional import when

if TYPE_CHECKING:
    from tldextract import TLDExtract


def site_of(url: str) -> str:
    """Return the registrable domain (`bbc.co.uk` of `https://news.bbc.co.uk/x`); empty without a host.

    A host without a public suffix (an IP address, a local name) is a site together with its port, if given. Uses the
    list of public suffixes included in tldextract; nothing is fetched.
    """
    try:
        address = urlsplit(url)
        host, port = (address.hostname or "").rstrip("."), address.port
    except ValueError:
        return ""
    named = host and port and port not in (80, 443)
    return _registrable_domain(host) or (f"{host}:{port}" if named else host)


def is_address(text: str) -> bool:
    """Whether a text is a complete HTTP(S) URL."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in text
    except ValueError:  # an invalid port or IPv6 address
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host. Names other than localhost count as reachable."""
    try:
        return ipaddress.ip_address(host).is_loopback
    # A host name: resolving it could block on DNS, so only localhost counts as loopback.
    except ValueError:
        return host == "localhost"


def has_userinfo(url: str) -> bool:
    """Whether a URL has a user or password before its host."""
    try:
        address = urlsplit(url)
        return bool(address.scheme) and "@" in address.netloc
    except ValueError:
        return False


@lru_cache(maxsize=2048)
def _registrable_domain(host: str) -> str:
    parts = _suffixes()(host)
    return when(parts.domain and parts.suffix, f"{parts.domain}.{parts.suffix}")


@cache
def _suffixes() -> TLDExtract:
    from tldextract import TLDExtract

    return TLDExtract(suffix_list_urls=(), cache_dir=None)
