"""The hosts at which recipients may listen, found without libzmq: its only thread would wait for the name server."""

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote

from xbus.errors import Refused
from xbus.rpc.curve import is_public_key

LOOKUP_SECONDS = 2.0
"""Seconds that a look-up of a host's name may take. Old recipients wait for some seconds when they register."""

LOOKUPS_AT_ONCE = 2
"""Threads that look names up. More serve further recipients while a name server is silent."""

ANY_HOST = "*"
"""The entry that allows every host."""

_ADDRESS = re.compile(
    r"tcp://(?P<host>[^;:/\[\]\s]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})(\?key=(?P<key>[^\s&#?]{1,120}))?"
)
_LARGEST_PORT = 65535


class RecipientPlace(NamedTuple):
    """The place where a recipient listens.

    Args:
        endpoint: with the number of its host.
        key: its public key; empty for no encryption.
    """

    endpoint: str
    key: str


class RecipientHosts:
    """Checks the addresses of recipients that register, and finds their hosts.

    Without any entry a recipient may listen on the broker's own machine, or where its registration came from.

    Args:
        allowed: further hosts: names, addresses, networks, or ``*``.
        look_up: finds the IPv4 address of a name; it may take its time.
        seconds: how long it is waited for.
    """

    def __init__(
        self,
        allowed: Sequence[str],
        look_up: Callable[[str], str] = socket.gethostbyname,
        seconds: float = LOOKUP_SECONDS,
    ) -> None:
        self._names = {entry.lower() for entry in allowed}
        self._networks = [ip_network(entry, strict=False) for entry in allowed if is_network(entry)]
        self._look_up = look_up
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(LOOKUPS_AT_ONCE, "names of recipients")

    async def find(self, uri: str, caller: str | None) -> RecipientPlace:
        """Find the place of a recipient, its host's number in place of the name.

        Args:
            uri: as the recipient registers it: ``tcp://host:port``, or ``tcp://host:port?key=...`` with its public key,
                whose special characters are written as in addresses of the web.
            caller: the address from which it registers; None where it was let in before.

        Raises:
            Refused: bad_address, host_not_allowed, or recipient_unreachable if nobody knows the host.
        """
        found = _ADDRESS.fullmatch(uri)
        if found is None or not 0 < int(found["port"]) <= _LARGEST_PORT:
            raise Refused("the address is not of the form tcp://host:port", "correct it", code="bad_address")
        key = unquote(found["key"] or "")
        if key and not is_public_key(key):
            raise Refused("the key in the address is no public key", "correct it", code="bad_address")
        host = found["host"].strip("[]")
        address = _number(host) or await self._number_of(host)
        if caller is not None and not self._is_allowed(host, address, caller):
            raise Refused(
                f"recipients may not listen at {address}, where {caller or 'nobody'} registers",
                "have the recipient dial out, or name its host in [back] recipient_hosts",
                code="host_not_allowed",
            )
        shown = f"[{address}]" if address.version == 6 else str(address)
        return RecipientPlace(f"tcp://{shown}:{found['port']}", key)

    async def _number_of(self, host: str) -> IPv4Address | IPv6Address:
        try:
            async with asyncio.timeout(self._seconds):
                loop = asyncio.get_running_loop()
                return ip_address(await loop.run_in_executor(self._threads, self._look_up, host))
        except (OSError, UnicodeError) as error:  # a time-out is an OSError, too
            raise Refused(
                f"the host {host[:100]!r} can't be found ({error or 'no answer in time'})",
                "register an address that the broker's machine knows",
                code="recipient_unreachable",
            ) from error

    def _is_allowed(self, host: str, address: IPv4Address | IPv6Address, caller: str) -> bool:
        return (
            address.is_loopback
            or str(address) == caller
            or ANY_HOST in self._names
            or host.lower() in self._names
            or any(address in network for network in self._networks)
        )


def is_network(entry: str) -> bool:
    """Check whether an entry is an address or a network, and no name."""
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def _number(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
