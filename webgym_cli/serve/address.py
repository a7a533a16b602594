"""The addresses of servers on this machine."""

from __future__ import annotations


def local_address(host: str) -> str:
    """Return the address at which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


def base_url(host: str, port: int) -> str:
    """Return the OpenAI base URL of a server on this machine."""
    name = local_address(host)
    return f"http://[{name}]:{port}/v1" if ":" in name else f"http://{name}:{port}/v1"
