"""Host names of the fixture sites, by which their tasks are known."""

from __future__ import annotations

# Sites with episodes.
SITE_HOSTS = ("shop.test", "mail.test")
# Hosts of the laboratory; `other.test` serves only frames of `lab.test` from another origin.
LAB_HOSTS = ("lab.test", "other.test")
# All served host names. `.test` is reserved (RFC 6761), so the browser must map them to the server.
HOSTS = (*SITE_HOSTS, *LAB_HOSTS)
