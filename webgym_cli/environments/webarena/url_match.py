"""Comparison of the last page's URL with the expected one."""

from __future__ import annotations

from collections import Counter
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from webgym_cli.environments.webarena.text_match import plain_number
from webgym_cli.records.webarena import OR, UrlRule

_LOCAL = {"localhost": "127.0.0.1"}
_PORTS = {"http": 80, "https": 443}


def url_matches(address: str, reference_url: str, rule: UrlRule) -> bool:
    """Whether a URL equals one of the expected ones, or is below it."""
    return any(_matches(address, wanted, rule) for wanted in reference_url.split(OR))


def _matches(address: str, wanted: str, rule: UrlRule) -> bool:
    try:
        ours, theirs = urlsplit(address.strip()), urlsplit(wanted.strip())
        if _origin(ours) != _origin(theirs):
            return False
    except ValueError:  # an invalid IPv6 address or port
        return False
    query, path = _query(theirs), _path(theirs)
    if rule is UrlRule.EXACT:
        return (_path(ours), _query(ours), ours.fragment) == (path, query, theirs.fragment)
    return f"{_path(ours)}/".startswith(f"{path}/") and query <= _query(ours)


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    host = parts.hostname or ""
    return parts.scheme, _LOCAL.get(host, host), parts.port or _PORTS.get(parts.scheme)


def _path(parts: SplitResult) -> str:
    return "/".join(map(plain_number, unquote(parts.path).removesuffix("/").split("/")))


def _query(parts: SplitResult) -> Counter[tuple[str, str]]:
    """Return the query parameters regardless of order, numbers in normal form."""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    return Counter((name, plain_number(value.strip()) if value.strip() else value) for name, value in pairs)
