"""Decides to which addresses calls may go, and looks at the address that a connection is made to.

A name is resolved once, and the connection goes to an address that was looked at: a name that gives another address the
second time (DNS rebinding) leads nowhere else.
"""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import httpcore2
from httpcore2 import SOCKET_OPTION

from xbus.errors import Refused

_EMBEDDING = IPv6Network("64:ff9b::/96")
"""Addresses of NAT64 (RFC 6052), which lead to the IPv4 address in their last four bytes."""


class AllowedAddresses:
    """The addresses that calls may go to: public ones, and those of networks that an operator names.

    Args:
        networks: what ``[http] callback_hosts`` says.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ip_network(each, strict=False) for each in networks]

    def has(self, address: str) -> bool:
        """Check an address; one that wraps another counts as that."""
        found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
        if any(found in network for network in self._networks):
            return True
        if isinstance(found, IPv6Address):
            inner = _wrapped(found)
            if inner is not None:
                return self.has(str(inner))
        return found.is_global and not found.is_multicast

    def chosen(self, host: str, addresses: Iterable[str]) -> list[str]:
        """Choose those of a host's addresses that calls may go to.

        Raises:
            Refused: there is none (``callback_not_allowed``).
        """
        found = [*dict.fromkeys(addresses)]
        allowed = [each for each in found if self.has(each)]
        if not allowed:
            raise Refused(
                f"{host} is at {', '.join(found) or 'no address'}, which calls may not go to",
                "if that is meant, name the network in [http] callback_hosts",
                code="callback_not_allowed",
            )
        return allowed


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    if address in _EMBEDDING:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (None if teredo is None else teredo[1])


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to allowed addresses only.

    Args:
        allowed: says which these are.
        inner: makes the connections.
    """

    def __init__(self, allowed: AllowedAddresses, inner: httpcore2.AsyncNetworkBackend) -> None:
        self._allowed = allowed
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve a host, and connect to the first of its allowed addresses that answers.

        Raises:
            Refused: no address is allowed (``callback_not_allowed``).
            httpcore2.ConnectError: the name is unknown, or no address answers.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._connect(host, port, socket_options)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} did not answer within {timeout:g} s") from None

    async def _connect(
        self, host: str, port: int, socket_options: Iterable[SOCKET_OPTION] | None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name {host} is not known ({error})") from error
        failure: Exception = httpcore2.ConnectError(host)
        for address in self._allowed.chosen(host, (str(each[4][0]) for each in found)):
            try:
                return await self._inner.connect_tcp(address, port, socket_options=socket_options)
            except httpcore2.ConnectError as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait, as the pool wants it between tries of a connection."""
        await asyncio.sleep(seconds)
