"""Looks at the address that a connection is made to.

A name is resolved once, and the connection goes to an address that was looked at: a name that gives another address the
second time (DNS rebinding) leads nowhere else.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

import httpcore2
from httpcore2 import SOCKET_OPTION

from xbus.http.targets import AllowedAddresses

MOST_LOOKUPS_OF_A_HOST = 2
"""Lookups of one name that are under way at once: one that never ends must not take all threads."""


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to allowed addresses only.

    Args:
        allowed: says which these are.
        inner: makes the connections.
        lookups: the threads that look names up.
    """

    def __init__(self, allowed: AllowedAddresses, inner: httpcore2.AsyncNetworkBackend, lookups: Executor) -> None:
        self._allowed = allowed
        self._inner = inner
        self._lookups = lookups
        self._under_way: Counter[str] = Counter()

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
        failure: Exception = httpcore2.ConnectError(host)
        for address in self._allowed.chosen(host, await self._look_up(host, port)):
            try:
                return await self._inner.connect_tcp(address, port, socket_options=socket_options)
            except httpcore2.ConnectError as error:
                failure = error
        raise failure

    async def _look_up(self, host: str, port: int) -> list[str]:
        if self._under_way[host] >= MOST_LOOKUPS_OF_A_HOST:
            raise httpcore2.ConnectError(f"the name server has not answered yet for {host}")
        lookup = self._lookups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        self._under_way[host] += 1
        # A call may give up; the thread goes on until the name server answers.
        looking = asyncio.wrap_future(lookup)
        looking.add_done_callback(lambda ended: self._ended(host, ended))
        try:
            found = await asyncio.shield(looking)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name {host} is not known ({error})") from error
        return [str(each[4][0]) for each in found]

    def _ended(self, host: str, lookup: "asyncio.Future[Any]") -> None:
        if not lookup.cancelled():
            lookup.exception()  # read, as nobody may wait for it any more
        self._under_way[host] -= 1
        if not self._under_way[host]:
            del self._under_way[host]

    async def sleep(self, seconds: float) -> None:
        """Wait, as the pool wants it between tries of a connection."""
        await asyncio.sleep(seconds)
