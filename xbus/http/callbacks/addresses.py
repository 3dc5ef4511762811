"""Decides to which addresses calls may go, and looks at the address that a connection is made to.

A name is resolved once, and the connection goes to an address that was looked at: a name that gives another address the
second time (DNS rebinding) leads nowhere else.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeVar

from xbus.errors import Refused

T = TypeVar("T")

_EMBEDDING = IPv6Network("64:ff9b::/96")
"""Addresses of NAT64 (RFC 6052), which lead to the IPv4 address in their last four bytes."""

_PUBLIC = IPv6Network("2000::/3")
"""The only addresses of IPv6 that are given to anybody so far (RFC 4291, section 2.4)."""

MOST_LOOKUPS_OF_A_HOST = 2
"""Lookups of one name that are under way at once: one that never ends must not take all threads."""


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
            if found not in _PUBLIC:
                return False
        return found.is_global and not found.is_multicast

    def chosen(self, host: str, addresses: Iterable[str]) -> list[str]:
        """Choose those of a host's addresses that calls may go to.

        Raises:
            Refused: calls may go to none of them (``callback_not_allowed``).
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


class CheckedNetwork:
    """Connects to allowed addresses only.

    Args:
        allowed: says which these are.
        lookups: the threads that look names up.
    """

    def __init__(self, allowed: AllowedAddresses, lookups: Executor) -> None:
        self._allowed = allowed
        self._lookups = lookups
        self._under_way: Counter[str] = Counter()

    async def connect(self, host: str, port: int, connect_to: Callable[[str, int], Awaitable[T]]) -> T:
        """Resolve a host, and connect to the first of its allowed addresses that answers.

        Args:
            connect_to: connects to an address; it raises OSError where that does not answer.

        Raises:
            Refused: no address is allowed (``callback_not_allowed``).
            OSError: the name is unknown, or no address answers.
        """
        failure = OSError(host)
        for address in self._allowed.chosen(host, await self._look_up(host, port)):
            try:
                return await connect_to(address, port)
            except OSError as error:
                failure = error
        raise failure

    async def _look_up(self, host: str, port: int) -> list[str]:
        if self._under_way[host] >= MOST_LOOKUPS_OF_A_HOST:
            raise OSError(f"the name server has not yet told where {host} is")
        lookup = self._lookups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        self._under_way[host] += 1
        # A call may give up; the thread goes on until the name server answers.
        looking = asyncio.wrap_future(lookup)
        looking.add_done_callback(lambda ended: self._ended(host, ended))
        try:
            found = await asyncio.shield(looking)
        except (OSError, UnicodeError) as error:
            raise OSError(f"the name {host} is not known ({error})") from error
        return [str(each[4][0]) for each in found]

    def _ended(self, host: str, lookup: "asyncio.Future[Any]") -> None:
        if not lookup.cancelled():
            lookup.exception()  # read, as nobody may wait for it any more
        self._under_way[host] -= 1
        if not self._under_way[host]:
            del self._under_way[host]
