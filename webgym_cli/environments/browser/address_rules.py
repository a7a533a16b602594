"""Addresses that the policy's browser may reach: the public web, but not this machine or private networks."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from urllib.parse import urlsplit

import psutil

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Private networks that `ipaddress` takes for public: always, or in some of the supported versions of Python.
_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # Azure's host agent
            "161.26.0.0/16",  # IBM Cloud's services, also the next one
            "166.8.0.0/14",
            "192.80.8.124/32",  # Equinix Metal's metadata
            "192.0.0.0/24",  # IETF protocol assignments; Oracle Cloud's metadata is 192.0.0.192
            "192.88.99.0/24",  # 6to4 relays
            "64:ff9b:1::/48",  # local NAT64, which may lead to any IPv4 address
            "2001::/23",
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
        ),
    )
)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Exceptions for private addresses, and host names that map to fixed endpoints."""

    networks: tuple[IPNetwork, ...] = ()
    """Private networks that are allowed."""
    names: frozenset[str] = frozenset()
    """Host names that are allowed, whatever they resolve to."""
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Host name -> address and port that its connections are routed to."""

    @classmethod
    def of(cls, private_hosts: Iterable[str]) -> AddressRules:
        """Read the setting `browser.private_hosts`: addresses, networks and host names."""
        networks, names = [], set()
        for entry in private_hosts:
            try:
                networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                names.add(entry.lower().rstrip("."))
        return cls(tuple(networks), frozenset(names))

    def with_places(self, places: Mapping[str, tuple[str, int]]) -> AddressRules:
        """Return a copy of the rules with host names that map to fixed endpoints."""
        return replace(self, places=places)

    def with_names(self, names: Iterable[str]) -> AddressRules:
        """Return a copy of the rules with more host names that are allowed, whatever they resolve to."""
        return replace(self, names=self.names | {name.lower().rstrip(".") for name in names})

    def refuse_url(self, url: str) -> str | None:
        """Return the reason why a URL is refused, judged by its text alone (no DNS); None if it is allowed."""
        try:
            parts = urlsplit(url)
            host, _ = (parts.hostname or "").rstrip("."), parts.port
        except ValueError:
            return f"{url!r} is not an address"
        if parts.scheme not in ("http", "https") or not host:
            return f"only http and https addresses can be visited, not {url!r}"
        return self.refuse_host(host)

    def refuse_host(self, host: str) -> str | None:
        """Return the reason why a host is refused, judged by its name alone (no DNS); None if it is allowed."""
        if host in self.names or host in self.places:
            return None
        if host == "localhost" or host.endswith(".localhost"):
            return f"{host} is a private address"
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None
        return self.refuse_address(address)

    def refuse_address(self, address: IPAddress) -> str | None:
        """Return the reason why an IP address is refused; None if it is allowed."""
        real = _extract_ipv4(address)
        if any(real in network or address in network for network in self.networks):
            return None
        if not is_public(address):
            return f"{address} is a private address"
        # Services of this machine, such as Ray's dashboard, often listen on its public address too.
        return f"{address} is an address of this machine, which is private" if _is_own(real) else None


def _extract_ipv4(address: IPAddress) -> IPAddress:
    """Return the IPv4 address embedded in an IPv6 one (mapped, NAT64, 6to4), else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def is_public(address: IPAddress) -> bool:
    """Whether an address is one of the public web; of one with an IPv4 address in it, that one."""
    address = _extract_ipv4(address)
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    unusual = address.is_multicast or address.is_reserved or any(address in network for network in _PRIVATE)
    return address.is_global and not unusual


def _is_own(address: IPAddress) -> bool:
    """Whether an address is delivered to this machine."""
    # A socket can be bound to local addresses only, also to those without an interface (a cloud's load balancer).
    if not _can_bind(address):
        return False
    return not _binds_any(address.version) or str(address) in _list_own()


def _can_bind(address: IPAddress) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


@cache
def _binds_any(version: int) -> bool:
    """Whether sockets can be bound to addresses of other machines (`ip_nonlocal_bind`)."""
    return _can_bind(ipaddress.ip_address("192.0.2.1" if version == 4 else "2001:db8::1"))


def _list_own() -> set[str]:
    interfaces = psutil.net_if_addrs().values()
    return {address.address.partition("%")[0] for address in chain.from_iterable(interfaces)}
