"""Egress proxy: the browser's only route to the network; it refuses all but public addresses.

A check of the address alone would miss redirects, links, scripts' requests and names that resolve to private
addresses. The proxy resolves each name and connects to the checked address, which prevents DNS rebinding.
Where the environment names a proxy (`https_proxy`), it goes on to that one, which resolves the name itself.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections import OrderedDict
from collections.abc import Collection
from urllib.parse import urlsplit

from webgym_cli.environments.browser.address_rules import AddressRules, is_public
from webgym_cli.environments.browser.upstream_proxy import Connection, UpstreamProxy
from webgym_cli.errors import BoundaryError
from webgym_cli.jobs.workers import race
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.local_server import format_address
from webgym_cli.util.proxies import find_proxy, ssl_context

_HEAD_LIMIT = 64 * 1024
_HEAD_TIMEOUT = 60.0
_CONNECT_TIMEOUT = 15.0
# For a name that another proxy resolves too; networks with one may have no names of the web, and answer nothing.
_LOOKUP_TIMEOUT = 3.0
_CHUNK = 64 * 1024
# Maximum number of remembered refused hosts, and of unreached ones.
_REFUSALS = 1000
# Number of hosts of which none can be reached, from which on the network is at fault and not the hosts.
_OUTAGE_HOSTS = 3
# Errors of this machine's network, whatever the host.
_OFFLINE = (errno.ENETUNREACH, errno.ENETDOWN, socket.EAI_AGAIN)


class RefusedRequest(Exception):
    """A request to a host that the rules refuse."""


class EgressProxy:
    """An HTTP proxy (plain requests and CONNECT) as an async context manager."""

    def __init__(self, rules: AddressRules, unchecked: Collection[str] = ()) -> None:
        """`unchecked`: the hosts whose certificates may be any; if there are such, the browser checks none at all."""
        self.rules = rules
        """Rules that decide which hosts are allowed."""
        self.unchecked = unchecked
        self._refused: OrderedDict[str, str] = OrderedDict()
        self._unreached: dict[str, OSError | None] = {}
        """Errors of the hosts to which a connection was tried since the last one that succeeded; None: none yet."""
        self._silent: OrderedDict[str, str] = OrderedDict()
        """Errors of the hosts, with port, to which the last connection failed."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> EgressProxy:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def address(self) -> str:
        """Address of the proxy: `http://127.0.0.1:PORT`."""
        if self._server is None:
            raise RuntimeError("the gate is not open")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def refusal(self, url: str) -> str | None:
        """Return the reason why a page's address was refused; None if it was not."""
        try:
            return self._refused.get(_host_of(url))
        except ValueError:
            return None

    def find_silent(self, *urls: str) -> str:
        """Return which of the URLs' servers could not be reached when it was last tried, and why; empty if none."""
        for url in urls:
            server = f"{_host_of(url)}:{urlsplit(url).port or (443 if url.startswith('https:') else 80)}"
            if server in self._silent:
                return f"{server} does not answer: {self._silent[server]}"
        return ""

    def find_outage(self, *urls: str) -> str:
        """Return why this machine's network seems to be down; empty if it does not, or if none of `urls` was tried.

        An error page has no host: it counts as tried.
        """
        hosts = set(map(_host_of, urls))
        if hosts.isdisjoint(self._unreached) and not any(url.startswith("chrome-error:") for url in urls):
            return ""
        for host, error in self._unreached.items():
            if error is not None and error.errno in _OFFLINE:
                return f"{host}: {error.strerror}"
        count = len(self._unreached)
        return f"none of the last {count} hosts could be reached" if count >= _OUTAGE_HOSTS else ""

    def require_reached(self, url: str) -> None:
        """Raise the failure of the network, or of a URL's server, if that did not answer when it was last asked."""
        if outage := self.find_outage(url):
            raise BoundaryError(FailureKind.NETWORK_UNAVAILABLE, f"{url} can't be loaded: {outage}")
        if silent := self.find_silent(url):
            raise BoundaryError(FailureKind.NAVIGATION_FAILED, f"{url} can't be loaded: {silent}")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            return  # the browser or the site disconnected, or sent no valid HTTP: the browser's connection is closed
        except asyncio.CancelledError:
            return  # the proxy is closing; asyncio would log a cancelled connection task
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_TIMEOUT):
            head = await reader.readuntil(b"\r\n\r\n")
        request, _, fields = head.partition(b"\r\n")
        method, target, version = request.decode("latin-1").split(" ", 2)
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if tunnel else target)
        host, port = (parts.hostname or "").rstrip("."), parts.port or (443 if tunnel else 80)
        try:
            if tunnel and self.unchecked and host not in self.unchecked:
                await self._check_certificate(host, port)
            (far_reader, far_writer), upstream = await self._connect(host, port, tunnel=tunnel)
        except RefusedRequest as reason:
            _remember(self._refused, host, str(reason))
            writer.write(_answer("403 Forbidden", f"webgym: {reason}"))
            return await writer.drain()
        except (OSError, TimeoutError) as error:
            self._refused.pop(host, None)
            cause = str(error) or "no answer in time"
            _remember(self._silent, f"{host}:{port}", cause)
            writer.write(_answer("502 Bad Gateway", f"webgym: {host}: {cause}"))
            return await writer.drain()
        self._refused.pop(host, None)
        self._silent.pop(f"{host}:{port}", None)
        if tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path, login = parts._replace(scheme="", netloc="").geturl() or "/", b""
            if upstream and upstream.takes_requests:
                path, login = target, upstream.login_field
            far_writer.write(f"{method} {path} {version}\r\n".encode("latin-1") + login + _one_request(fields))
        await _relay(reader, writer, far_reader, far_writer)

    async def _check_certificate(self, host: str, port: int) -> None:
        """Refuse a host whose certificate is not valid, in place of the browser."""
        (_, writer), _ = await self._connect(host, port, tunnel=True)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                await writer.start_tls(ssl_context(), server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise RefusedRequest(f"the certificate of {host} is not valid: {error.verify_message}") from error
        except ssl.SSLError:
            return  # no TLS, as of a WebSocket without it
        finally:
            writer.close()

    async def _connect(self, host: str, port: int, *, tunnel: bool) -> tuple[Connection, UpstreamProxy | None]:
        """Return a connection to a host, or to the proxy that the environment names for it, and that proxy."""
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            if place := self.rules.places.get(host):
                return await asyncio.open_connection(*place), None
            if reason := self.rules.refuse_host(host):
                raise RefusedRequest(reason)
            self._note_unreached(host, None)  # an attempt without an answer may outlast the page's deadline
            try:
                addresses, upstream = await self._find_route(host, port, tunnel=tunnel)
                if upstream is None:
                    connection = await self._connect_first(host, addresses, port)
                elif tunnel or not upstream.takes_requests:
                    connection = await upstream.open_tunnel(host, port)
                else:
                    connection = await upstream.connect()
            except OSError as error:
                self._note_unreached(host, error)
                raise
            except RefusedRequest:
                self._unreached.pop(host, None)
                raise
            self._unreached.clear()
            return connection, upstream

    async def _find_route(self, host: str, port: int, *, tunnel: bool) -> tuple[list[str], UpstreamProxy | None]:
        """Return a host's addresses, and the environment's proxy for it.

        No proxy: there is none, or the addresses are private and allowed. No addresses: the name is left to the proxy,
        as only that one can resolve it. Raises `RefusedRequest` for addresses that are refused.
        """
        scheme = "https" if tunnel else "http"
        proxy = find_proxy(f"{scheme}://{format_address((host, port))}", needed=False)
        if proxy is None:
            return await self._addresses(host, port), None
        try:
            async with asyncio.timeout(_LOOKUP_TIMEOUT):
                addresses = await self._addresses(host, port)
        except (socket.gaierror, TimeoutError):
            addresses = []
        is_private = any(not is_public(ipaddress.ip_address(address.partition("%")[0])) for address in addresses)
        return addresses, None if is_private else UpstreamProxy(proxy)

    async def _connect_first(self, host: str, addresses: Collection[str], port: int) -> Connection:
        """Connect to the first address of a host that answers. Raises the first address's error."""
        errors = []
        for address in addresses:
            try:
                return await asyncio.open_connection(address, port)
            except OSError as error:
                errors.append(error)
        raise errors[0] if errors else OSError(f"{host}: no address")

    def _note_unreached(self, host: str, error: OSError | None) -> None:
        if host in self._unreached or len(self._unreached) < _REFUSALS:
            self._unreached[host] = error

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host. Refuses it if any address is private, since a mix of public and private is an attack."""
        resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in resolved]
        if host not in self.rules.names:
            for address in addresses:
                if reason := self.rules.refuse_address(ipaddress.ip_address(address.partition("%")[0])):
                    raise RefusedRequest(f"{host} leads to a private address ({reason})")
        return addresses


def _host_of(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".")


def _remember(reasons: OrderedDict[str, str], host: str, reason: str) -> None:
    reasons[host] = reason
    while len(reasons) > _REFUSALS:
        reasons.popitem(last=False)


def _one_request(fields: bytes) -> bytes:
    """Return a request's header fields so that its connection carries no other request, perhaps to another host."""
    lines = [line for line in fields.split(b"\r\n") if line]
    kept = [line for line in lines if not line.lower().startswith((b"proxy-", b"connection:"))]
    upgrade = any(line.lower().startswith(b"upgrade:") for line in kept)
    return b"\r\n".join([*kept, b"Connection: Upgrade" if upgrade else b"Connection: close", b"", b""])


def _answer(status: str, text: str) -> bytes:
    body = text.encode(errors="replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


async def _relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Copy in both directions until either side ends: a browser disconnects only when it needs nothing more."""
    try:
        async with race(_copy(reader, far_writer), _copy(far_reader, writer)) as (request, answer):
            if request.done() and not request.result():
                await answer  # a site may have answered before it stopped listening
    finally:
        far_writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> bool:
    """Copy until EOF. Returns False if either side failed before."""
    try:
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    except OSError:
        return False
    return True
