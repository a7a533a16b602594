"""Host names of the fixture sites, by which their tasks are known."""

from __future__ import annotations

# `.test` is reserved (RFC 6761), so the browser must map them to the server.
SITE_HOSTS = ("shop.test", "mail.test")
