"""Addresses of local servers."""

import socket

import pytest
from aiohttp import web

from webgym_cli.util.local_server import LocalServer


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:"), ("::1", "[::1]:")])
async def test_an_address_is_as_in_a_url(host, shown):
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6")
    async with LocalServer(web.Application(), 0, host) as server:
        assert server.address.startswith(shown)
