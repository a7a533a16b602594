"""Connections through the environment's proxy, where a network has no other way to the web: HTTP, HTTPS and SOCKS5."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from webgym_cli.util.local_server import format_address
from webgym_cli.util.optional import when
from webgym_cli.util.proxies import EnvironmentProxy, ssl_context

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
# SOCKS5, RFC 1928, and its login by user and password, RFC 1929.
_NO_LOGIN, _LOGIN = b"\x00", b"\x02"
_LENGTHS = {1: 4, 4: 16}  # of the address in an answer: IPv4, IPv6; a name has its own


@dataclass(frozen=True, slots=True)
class UpstreamProxy:
    """The proxy of one variable. Its methods raise `OSError` that names the variable."""

    environment: EnvironmentProxy

    @property
    def takes_requests(self) -> bool:
        """Whether plain requests are sent to it whole; else they need a tunnel, too."""
        return self._url.scheme in ("http", "https")

    @property
    def login_field(self) -> bytes:
        """The header field with user and password; empty without any."""
        if not self._url.username:
            return b""
        return b"Proxy-Authorization: Basic " + base64.b64encode(b":".join(self._login)) + b"\r\n"

    async def connect(self) -> Connection:
        """Connect to the proxy itself."""
        port = self._url.port or _PORTS[self._url.scheme]
        tls = ssl_context() if self._url.scheme == "https" else None
        try:
            return await asyncio.open_connection(self._url.hostname, port, ssl=tls)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror or error}{self._described}") from error

    async def open_tunnel(self, host: str, port: int) -> Connection:
        """Return a connection to a host, whose name the proxy resolves."""
        reader, writer = await self.connect()
        negotiate = self._request_tunnel if self.takes_requests else self._request_socks
        try:
            if problem := await negotiate(reader, writer, host, port):
                raise OSError(f"{problem}{self._described}")
        except BaseException as error:
            writer.close()
            if isinstance(error, asyncio.IncompleteReadError):
                raise OSError(f"no answer of a proxy{self._described}") from error
            raise
        return reader, writer

    @property
    def _url(self) -> SplitResult:
        return urlsplit(self.environment.url)

    @property
    def _login(self) -> tuple[bytes, bytes]:
        return unquote_to_bytes(self._url.username or ""), unquote_to_bytes(self._url.password or "")

    @property
    def _described(self) -> str:
        return f" (through the proxy in {self.environment.variable})"

    async def _request_tunnel(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> str:
        """Request a tunnel of an HTTP proxy; return why it gave none."""
        name = format_address((host, port))
        writer.write(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n".encode() + self.login_field + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.partition(b"\r\n")[0].decode("latin-1")
        return when(status.split(" ")[1:2] != ["200"], f"the proxy answered {status!r}")

    async def _request_socks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> str:
        """Request a connection of a SOCKS5 proxy; return why it gave none."""
        writer.write(b"\x05\x01" + (_LOGIN if self._url.username else _NO_LOGIN))
        if (await reader.readexactly(2))[1:] == _LOGIN:
            writer.write(b"\x01" + b"".join(bytes([len(part)]) + part for part in self._login))
            if (await reader.readexactly(2))[1]:
                return "the proxy refuses the login"
        name = host.encode("idna")
        writer.write(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + port.to_bytes(2))
        _, code, _, kind = await reader.readexactly(4)
        await reader.readexactly((_LENGTHS.get(kind) or (await reader.readexactly(1))[0]) + 2)
        return when(code, f"SOCKS error {code}")
