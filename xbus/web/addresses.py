"""Addresses of clients: whether they are in a network, and which of them are one machine. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

LOOPBACK = ("127.0.0.0/8", "::1")

MOST_KNOWN_ADDRESSES = 1024
"""Addresses of clients of which is remembered whose they are: to read one is a good part of a request."""

MACHINE_BITS = 64
"""The bits of an address of IPv6 that name a network: one machine may take any address in it (RFC 4291, 2.5.4)."""


def networks_of(entries: Sequence[str]) -> tuple[Network, ...]:
    """Read addresses and networks."""
    return tuple(ip_network(entry, strict=False) for entry in entries)


@lru_cache(MOST_KNOWN_ADDRESSES)
def is_in(address: str, networks: tuple[Network, ...]) -> bool:
    """Check whether an address is in one of some networks; an unreadable one is in none."""
    found = _read(address)
    return found is not None and any(found in network for network in networks)


def machine_of(address: str) -> str:
    """Name the machine at an address; all addresses in a network of IPv6 count as one machine."""
    found = _read(address)
    if isinstance(found, IPv6Address):
        return str(ip_network((int(found) >> 128 - MACHINE_BITS << 128 - MACHINE_BITS, MACHINE_BITS)))
    return address if found is None else str(found)


def _read(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
