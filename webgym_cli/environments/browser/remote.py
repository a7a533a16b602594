"""Addresses of remote browsers: validation, and redaction of the API keys that services put into them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from webgym_cli.errors import SettingsError

_SCHEMES = ("http", "https", "ws", "wss")
# A password may contain `@`.
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]{0,30})://(?:[^\s/?#]*@)?([^\s/?#]*)\S*", re.IGNORECASE)
_LONGEST = 300


def require_address(url: str) -> None:
    """Raise `SettingsError` unless this may be a browser's CDP address."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        # what has no host to be shown alone may be a key from the first letter on
        shown = redact_keys(url) if _ADDRESS.fullmatch(url) else f"a text of {len(url)} characters"
        raise SettingsError(
            f"browser.cdp_urls: {shown} is no address of a browser",
            hint="http://HOST:PORT, or the ws:// address that the browser tells",
        )


def redact_keys(text: str) -> str:
    """Return a text whose addresses have only scheme, host and port: the rest may hold a key."""
    return _ADDRESS.sub(r"\1://\2", text)


def error_reason(error: Exception) -> str:
    """Return Playwright's message for a failed connection as one short line, without call log and keys."""
    reason = str(error).split("Call log:")[0].removeprefix("BrowserType.connect_over_cdp: ")
    return redact_keys(" ".join(reason.split()))[:_LONGEST] or type(error).__name__
