"""Bounds the connections of a server, of each machine and of all together. Pure."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from xbus.clock import Clock
from xbus.log_throttle import LogThrottle

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


log = logging.getLogger(__name__)

MACHINE_SHARE = 2
"""The connections of all as a multiple of those of one machine. More leaves more to others, and refuses large offices
that share an address sooner."""

STRANGER_SECONDS = 5.0
"""Seconds that a stranger may take for the head of a request. Less cuts slow lines off, more lets silent
connections stay."""

CROWDED = "crowded"
REFUSED = "refused"
UNREADABLE = "unreadable"

_CAUSES = {
    CROWDED: "a silent connection was closed, as another one needs its place",
    REFUSED: "a connection was refused, as too many are busy",
    UNREADABLE: "a request was refused, as it makes no sense",
}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The bounds of connections.

    Args:
        connections: how many may be open.
        head_seconds: how long a client may take for the head of a request; a stranger has 5 seconds at most.
        stall_seconds: how long a client may take nothing of an answer that waits for it.
        proxies: addresses and networks that speak for many clients, beside this machine itself.
    """

    connections: int
    head_seconds: float
    stall_seconds: float
    proxies: tuple[str, ...] = ()

    @property
    def stranger_seconds(self) -> float:
        """Give the time that a stranger has for the head of a request."""
        return min(STRANGER_SECONDS, self.head_seconds)


class WebConnection:
    """An open connection, from the moment when it is accepted.

    Attributes:
        cut: ends it at once.
        is_known: whether somebody has shown by it who they are.
    """

    __slots__ = ("_table", "address", "cut", "is_known", "machine")

    def __init__(self, table: "WebConnections", address: str, cut: Callable[[], object]) -> None:
        self._table = table
        self.address = address
        self.machine = machine_of(address)
        self.cut = cut
        self.is_known = False

    def owes_a_request(self) -> None:
        """Note that the server waits for this client."""
        self._table.rest(self)

    def is_answered(self) -> None:
        """Note that this client waits for the server."""
        self._table.wake(self)

    def left(self) -> None:
        """Note that the connection has ended."""
        self._table.leave(self)

    def is_unreadable(self) -> None:
        """Note that a request of this client makes no sense."""
        self._table.note(UNREADABLE, self.address)


class WebConnections:
    """The open connections of a server.

    Args:
        name: of the server, for the log.
        limits: the bounds.
        clock: measures how often the log tells of a machine.
    """

    def __init__(self, name: str, limits: ConnectionLimits, clock: Clock) -> None:
        self._name = name
        self._limits = limits
        self._proxies: tuple[Network, ...] = networks_of((*LOOPBACK, *limits.proxies))
        self._of_machine: dict[str, dict[WebConnection, None]] = {}
        self._strangers: dict[WebConnection, None] = {}
        """Connections that owe a request and have shown no token, the one that has owed it for longest first."""
        self._known: dict[WebConnection, None] = {}
        """The others that owe a request."""
        self._throttle = LogThrottle(clock)
        self.open = 0

    def enter(self, address: str, cut: Callable[[], object]) -> WebConnection | None:
        """Take a new connection; None where it is to be refused.

        Args:
            address: of the client.
            cut: ends the connection at once.
        """
        connection = WebConnection(self, address, cut)
        others = self._of_machine.get(connection.machine, {})
        most = max(1, self._limits.connections // MACHINE_SHARE)
        if len(others) >= most and not is_in(address, self._proxies):
            silent = next((one for one in others if one in self._strangers), None)
            silent = silent or next((one for one in others if one in self._known), None)
        elif self.open >= self._limits.connections:
            silent = next(iter(self._strangers), None) or next(iter(self._known), None)
        else:
            self._add(connection)
            return connection
        if silent is None:
            self.note(REFUSED, address)
            return None
        self.note(CROWDED, silent.address)
        self.leave(silent)
        silent.cut()
        self._add(connection)
        return connection

    def rest(self, connection: WebConnection) -> None:
        """Note that a connection owes a request."""
        if connection in self._of_machine.get(connection.machine, {}):
            self.wake(connection)
            (self._known if connection.is_known else self._strangers)[connection] = None

    def wake(self, connection: WebConnection) -> None:
        """Note that a request of a connection is being answered."""
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def leave(self, connection: WebConnection) -> None:
        """Forget a connection; again it does nothing."""
        self.wake(connection)
        of_machine = self._of_machine.get(connection.machine, {})
        if connection in of_machine:
            del of_machine[connection]
            self.open -= 1
            if not of_machine:
                del self._of_machine[connection.machine]

    def note(self, reason: str, address: str) -> None:
        """Log what was done to a client, once a minute for each address and reason."""
        if count := self._throttle.note(f"{reason} {address}"):
            extra = {"action": "connection_cut_off", "code": reason, "peer": address, "count": count}
            log.warning("%s: %s", self._name, _CAUSES[reason], extra=extra)

    def _add(self, connection: WebConnection) -> None:
        self._of_machine.setdefault(connection.machine, {})[connection] = None
        self._strangers[connection] = None
        self.open += 1
