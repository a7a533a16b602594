"""The site of an address: its registrable domain, by which failures are counted and sites are blocked."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tldextract import TLDExtract


def site_of(url: str) -> str:
    """Return the registrable domain (`bbc.co.uk` of `https://news.bbc.co.uk/x`), else the host; empty without one.

    By the list of public suffixes that ships with tldextract: nothing is fetched.
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""
    return _site_of_host(host)


@lru_cache(maxsize=2048)
def _site_of_host(host: str) -> str:
    parts = _suffixes()(host)
    return f"{parts.domain}.{parts.suffix}" if parts.domain and parts.suffix else host


@cache
def _suffixes() -> TLDExtract:
    from tldextract import TLDExtract

    return TLDExtract(suffix_list_urls=(), cache_dir=None)
