"""Comparison of the last page's URL with the expected one."""

from __future__ import annotations

from collections import Counter
from urllib.parse import ParseResult, parse_qsl, unquote, urlparse

from webgym_cli.environments.webarena.text_match import plain_number
from webgym_cli.records.webarena import OR, UrlRule

_LOCAL = {"localhost": "127.0.0.1"}
_DEFAULT_PORTS = (None, 80, 443)


def url_matches(address: str, reference_url: str, rule: UrlRule) -> bool:
    """Whether a URL equals one of the expected ones, or is below it."""
    return any(_matches(address, wanted, rule) for wanted in reference_url.split(OR))


def _matches(address: str, wanted: str, rule: UrlRule) -> bool:
    try:
        ours, theirs = (urlparse(url.strip().rstrip("/")) for url in (address, wanted))
        if _origin(ours) != _origin(theirs):
            return False
    except ValueError:  # an invalid IPv6 address or port
        return False
    query, path = _query(theirs), _path(theirs)
    if rule is UrlRule.EXACT:
        return (_path(ours), _query(ours), ours.fragment) == (path, query, theirs.fragment)
    required = Counter({pair: count for pair, count in query.items() if pair[1]})  # `label=` asks for nothing
    return f"{_path(ours)}/".startswith(f"{path}/") and required <= _query(ours)


def _origin(parts: ParseResult) -> tuple[str, int | None]:
    """Return host and port. A site may answer at http or https."""
    host = parts.hostname or ""
    return _LOCAL.get(host, host), None if parts.port in _DEFAULT_PORTS else parts.port


def _path(parts: ParseResult) -> str:
    return "/".join(map(plain_number, unquote(parts.path).rstrip("/").split("/")))


def _query(parts: ParseResult) -> Counter[tuple[str, str]]:
    """Return the query parameters regardless of order, numbers in normal form."""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    return Counter((name, plain_number(value.strip()) if value.strip() else value) for name, value in pairs)
