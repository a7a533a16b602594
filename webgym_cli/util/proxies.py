"""Proxies and certificates that the environment names. Connections to this machine never take a proxy."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webgym_cli.errors import SettingsError
from webgym_cli.util.optional import map_known

if TYPE_CHECKING:
    import ssl

_SCHEMES = {"ws": "http", "wss": "https"}
_PORTS = {"http": 80, "https": 443}
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_HOST = re.compile(r"[\w.*-]+")
_SEPARATORS = re.compile(r"[,\s]+")
# As httpx, pip and curl spell loopback in `no_proxy`.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class EnvironmentProxy:
    """A proxy and the environment variable that names it."""

    variable: str
    url: str


@dataclass(frozen=True, slots=True)
class _Exemption:
    """An entry of `no_proxy`."""

    host: str = ""
    """A name, possibly with `*`, or `.example.com`; empty: `network`."""
    network: Network | None = None
    port: int | None = None

    def holds(self, host: str, port: int | None) -> bool:
        if self.port not in (None, port):
            return False
        if self.network is not None:
            address = _parse_ip(host)
            return address is not None and address in self.network
        return fnmatchcase(host, self.host) or host.endswith(f".{self.host.removeprefix('*').removeprefix('.')}")


def find_proxy(address: str, *, needed: bool = True) -> EnvironmentProxy | None:
    """Return the environment's proxy for an address; None: a direct connection, as always to this machine.

    `needed`: whether the package that HTTP clients take for a SOCKS proxy must be there. Raises `SettingsError` that
    names the variable if it is malformed.
    """
    parts = urlsplit(address)
    host, scheme = parts.hostname or "", _SCHEMES.get(parts.scheme, parts.scheme)
    port = parts.port or _PORTS.get(scheme)
    if is_this_machine(host):
        return None
    for kind in (scheme, "all"):
        variable, value = _read(f"{kind}_proxy")
        if value and not any(exempt.holds(host, port) for exempt in _list_exemptions()):
            return EnvironmentProxy(variable, _parse_proxy(variable, value, needed=needed))
    return None


def describe_proxy(address: str) -> str:
    """Return the addition to an error's message that names the proxy of an address; empty for a direct connection."""
    proxy = find_proxy(address)
    return f" (through the proxy in {proxy.variable})" if proxy else ""


def is_this_machine(host: str) -> bool:
    """Whether a host of an address is this machine: loopback in any spelling, and 0.0.0.0."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _parse_ip(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped is not None and (mapped.is_loopback or mapped.is_unspecified)


def check_network_variables() -> None:
    """Raise `SettingsError` that names the first malformed proxy or certificate variable."""
    for kind in ("http", "https", "all"):
        variable, value = _read(f"{kind}_proxy")
        if value:
            _parse_proxy(variable, value, needed=False)
    _list_exemptions()
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        place = os.environ.get(variable, "")
        if place and not Path(place).is_dir():
            _check_certificates(variable, place)
    ssl_context()


def ssl_context() -> ssl.SSLContext:
    """Return the TLS context that the environment asks for. Raises `SettingsError`."""
    return _make_context(*(os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")))


def exempt_loopback(environ: MutableMapping[str, str]) -> list[str]:
    """Add loopback to `no_proxy`, for libraries and child processes; return the entries that they can't read.

    Those are left out: httpx fails on networks of IPv6 addresses and on brackets.
    """
    if not any(name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in environ):
        return []
    entries = [entry for entry in _SEPARATORS.split(_read("no_proxy", environ)[1]) if entry]
    foreign = [entry for entry in entries if "/" in entry and ":" in entry and "://" not in entry]
    kept = [re.sub(r"^\[([^\]]*)\]$", r"\1", entry) for entry in entries if entry not in foreign]
    value = ",".join(dict.fromkeys([*kept, *_LOOPBACK])) if "*" not in kept else "*"
    environ["no_proxy"] = environ["NO_PROXY"] = value
    return foreign


def _read(name: str, environ: MutableMapping[str, str] = os.environ) -> tuple[str, str]:
    """Return a variable's name and value; the name in small letters counts first."""
    variable = next((one for one in (name, name.upper()) if one in environ), name)
    return variable, environ.get(variable, "").strip()


def check_key_log() -> None:
    """Raise `SettingsError` for an unusable `SSLKEYLOGFILE`, on which already the import of libraries fails."""
    if place := os.environ.get("SSLKEYLOGFILE"):
        try:
            Path(place).open("ab").close()
        except OSError as error:
            raise _refuse_certificates("SSLKEYLOGFILE", place, error.strerror or "") from error


def _list_exemptions() -> tuple[_Exemption, ...]:
    return _parse_exemptions(*_read("no_proxy"))


@lru_cache(maxsize=8)
def _parse_exemptions(variable: str, value: str) -> tuple[_Exemption, ...]:
    return tuple(_parse_exemption(variable, entry) for entry in _SEPARATORS.split(value) if entry)


def _parse_exemption(variable: str, entry: str) -> _Exemption:
    text = entry.partition("://")[2] or entry
    host, port = text, ""
    if bracketed := re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", text):
        host, port = bracketed[1], bracketed[2] or ""
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    try:
        number = map_known(int, port or None)
        if "/" in host:
            return _Exemption(network=ipaddress.ip_network(host, strict=False), port=number)
        if (address := _parse_ip(host)) is not None:
            return _Exemption(network=ipaddress.ip_network(address), port=number)
        if not _HOST.fullmatch(host):
            raise ValueError(host)
    except ValueError:
        raise SettingsError(
            f"environment {variable}: {entry!r} is no host, address or network",
            hint=f"export {variable}=localhost,.example.com,10.0.0.0/8",
        ) from None
    return _Exemption(host=host.lower(), port=number)


def _parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a host is, also in short spellings (`127.1`); None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _parse_proxy(variable: str, value: str, *, needed: bool = True) -> str:
    """Return a proxy's URL. `needed`: whether a package that it takes must be there."""
    full = value if "://" in value else f"http://{value}"
    full = re.sub(r"^socks://", "socks5://", full, flags=re.IGNORECASE)
    try:
        url = urlsplit(full)
        host = url.hostname or ""
        known = url.scheme in _PROXY_SCHEMES and (_HOST.fullmatch(host) or _parse_ip(host))
        plain = url.path in ("", "/") and not url.netloc.endswith(":")
        fine = known and plain and url.port != 0 and full.isascii() and full.isprintable() and " " not in full
    except ValueError:
        fine = False
    if not fine:
        shown = "what it holds" if "@" in value else repr(value)
        raise SettingsError(
            f"environment {variable}: {shown} is no proxy",
            hint=f"export {variable}=http://HOST:PORT, or unset {variable}",
        )
    if needed and url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise SettingsError(
            f"environment {variable}: a SOCKS proxy needs the package socksio", hint="pip install 'httpx[socks]'"
        )
    return full


@lru_cache(maxsize=4)
def _make_context(file: str, folders: str, key_log: str) -> ssl.SSLContext:
    import httpx

    if file:
        _check_certificates("SSL_CERT_FILE", file)
    if folders and not any(Path(folder).is_dir() for folder in folders.split(os.pathsep)):
        raise _refuse_certificates("SSL_CERT_DIR", folders, "no such folder")
    check_key_log()
    return httpx.create_ssl_context()


def _check_certificates(variable: str, file: str) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except (OSError, ValueError) as error:
        raise _refuse_certificates(variable, file, getattr(error, "strerror", "") or f"{error}") from error


def _refuse_certificates(variable: str, place: str, reason: str) -> SettingsError:
    return SettingsError(
        f"environment {variable}: {place}: {reason}", hint=f"unset {variable}, or name what can be read and written"
    )
