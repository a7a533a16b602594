"""The gate behind another proxy: what goes on to that one, what stays direct, and what is refused as without it."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from tests.environments.odd_server import OddServer
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.egress_proxy import EgressProxy, _relay

LOGIN = b"Proxy-Authorization: Basic bWU6cEBzcw=="  # me:p@ss
PUBLIC, LOOPBACK = "93.184.216.34", "127.0.0.1"


class Upstream:
    """A proxy for HTTP and SOCKS5 that leads each request to one server, and notes what was asked of it."""

    def __init__(self, place):
        self.place, self.requests, self.refuses = place, [], b""

    async def serve(self, reader, writer):
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader, writer):
        first = await reader.readexactly(1)
        if first == b"\x05":
            return await self._serve_socks(reader, writer)
        head = first + await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        if self.refuses:
            return writer.write(b"HTTP/1.1 " + self.refuses + b"\r\nContent-Length: 0\r\n\r\n")
        far = await asyncio.open_connection(*self.place)
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 fine\r\nVia: us\r\n\r\n")
        else:
            method, _, rest = head.partition(b" ")
            far[1].write(method + b" /page " + rest.partition(b" ")[2])
        return await _relay(reader, writer, *far)

    async def _serve_socks(self, reader, writer):
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05" + methods)
        if methods == b"\x02":
            await reader.readexactly(1)
            parts = [await reader.readexactly((await reader.readexactly(1))[0]) for _ in range(2)]
            writer.write(b"\x01" + bytes([parts != [b"me", b"p@ss"]]))
        assert await reader.readexactly(4) == b"\x05\x01\x00\x03"
        name = await reader.readexactly((await reader.readexactly(1))[0])
        self.requests.append(name + b":%d" % int.from_bytes(await reader.readexactly(2)))
        if self.refuses:
            return writer.write(b"\x05\x02\x00\x01" + bytes(6))
        far = await asyncio.open_connection(*self.place)
        writer.write(b"\x05\x00\x00\x04" + bytes(18))
        return await _relay(reader, writer, *far)


@pytest.fixture
async def server():
    async with OddServer(pages={"/page": "<h1>page</h1>"}) as odd:
        yield odd


@pytest.fixture
async def upstream(server, monkeypatch):
    """A proxy that the environment names for HTTP and HTTPS; names of the tests resolve as they say, others do not."""
    proxy = Upstream(server.place)

    async def getaddrinfo(self, host, port, **options):
        addresses = {"public.example": PUBLIC, "trick.example": "10.0.0.1", "intranet.example": LOOPBACK}
        if address := addresses.get(host, host if host in (PUBLIC, LOOPBACK) else ""):
            return [(socket.AF_INET, 1, 6, "", (address, port))]
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as listening:
        proxy.port = listening.sockets[0].getsockname()[1]
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
        yield proxy


@asynccontextmanager
async def opened(rules=None):
    async with EgressProxy(rules or AddressRules()) as gate:
        yield gate


async def speak(gate, target, *, tunnel):
    """Request a page through the gate, in a tunnel if so said, and return the answer."""
    host = target.split("/")[2]
    reader, writer = await asyncio.open_connection(*gate.address.removeprefix("http://").split(":"))
    async with asyncio.timeout(20):
        if tunnel:
            writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            if b" 200 " not in (head := await reader.readuntil(b"\r\n\r\n")):
                return head + await reader.read()
        path = target.partition(host)[2] if tunnel else target
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("host", ["public.example", "unknown.example", PUBLIC])
async def test_the_web_is_reached_through_the_proxy_of_the_environment(upstream, server, host):
    async with opened() as gate:
        assert b"<h1>page" in await speak(gate, f"http://{host}/page", tunnel=False)
        assert b"<h1>page" in await speak(gate, f"https://{host}:8443/page", tunnel=True)
        assert gate.find_outage(f"http://{host}/") == gate.find_silent(f"http://{host}/") == ""
    plain, tunnel = upstream.requests
    assert plain.startswith(f"GET http://{host}/page HTTP/1.1\r\n".encode()) and LOGIN in plain
    assert tunnel.startswith(f"CONNECT {host}:8443 HTTP/1.1\r\n".encode()) and LOGIN in tunnel


async def test_a_socks_proxy_gets_the_name_and_the_login(upstream, server, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("all_proxy", f"socks5h://me:p%40ss@127.0.0.1:{upstream.port}")
    async with opened() as gate:
        assert b"<h1>page" in await speak(gate, "http://unknown.example/page", tunnel=False)
        assert b"<h1>page" in await speak(gate, "https://unknown.example/page", tunnel=True)
        assert upstream.requests == [b"unknown.example:80", b"unknown.example:443"]
        upstream.refuses = b"x"
        assert b" 502 " in await speak(gate, "https://unknown.example/page", tunnel=True)
        assert "SOCKS error 2 (through the proxy in all_proxy)" in gate.find_silent("https://unknown.example/")


@pytest.mark.parametrize("tunnel", [False, True])
@pytest.mark.parametrize("host", ["10.0.0.1", "trick.example", "localhost", "169.254.169.254"])
async def test_private_hosts_are_refused_as_without_it(upstream, host, tunnel):
    async with opened() as gate:
        assert b" 403 " in await speak(gate, f"http://{host}/page", tunnel=tunnel)
    assert upstream.requests == []


async def test_allowed_private_hosts_and_exempt_ones_are_reached_directly(upstream, server, monkeypatch):
    async with opened(AddressRules.of(["intranet.example", "127.0.0.0/8"])) as gate:
        for host in ("intranet.example", "127.0.0.1"):
            assert b"<h1>page" in await speak(gate, f"http://{host}:{server.port}/page", tunnel=False)
        monkeypatch.setenv("no_proxy", ".example")
        assert b" 502 " in await speak(gate, "http://unknown.example/page", tunnel=False)
    assert upstream.requests == []


@pytest.mark.parametrize("tunnel", [False, True])
async def test_a_proxy_that_fails_is_named_and_no_fault_of_the_site(upstream, tunnel, monkeypatch):
    upstream.refuses = b"407 Proxy Authentication Required"
    variable = "https_proxy" if tunnel else "http_proxy"
    async with opened() as gate:
        if tunnel:
            for number in range(3):
                assert b" 502 " in await speak(gate, f"http://a{number}.example:80/page", tunnel=True)
            problem = gate.find_silent("http://a0.example/")
            assert f"407 Proxy Authentication Required' (through the proxy in {variable})" in problem
            assert gate.find_outage("http://a0.example/")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            monkeypatch.setenv(variable, f"127.0.0.1:{free.getsockname()[1]}")
            assert b" 502 " in await speak(gate, "http://b.example:80/page", tunnel=tunnel)
        assert f"(through the proxy in {variable})" in gate.find_silent("http://b.example/")
