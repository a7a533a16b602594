"""The addresses of servers on this machine."""

from __future__ import annotations

from webgym_cli.util.local_server import format_address


def local_address(host: str) -> str:
    """Return the address at which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


def base_url(host: str, port: int) -> str:
    """Return the OpenAI base URL of a server on this machine."""
    return f"http://{format_address((local_address(host), port))}/v1"
