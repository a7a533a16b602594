"""Addresses that the policy's browser may reach: the public web, but not this machine or private networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

_NAT64 = ipaddress.ip_network("64:ff9b::/96")

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


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
        if any(real in network for network in self.networks) or _public(real):
            return None
        return f"{address} is a private address"


def _extract_ipv4(address: IPAddress) -> IPAddress:
    """Return the IPv4 address embedded in an IPv6 one (mapped, NAT64, 6to4), else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _public(address: IPAddress) -> bool:
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or site_local)
