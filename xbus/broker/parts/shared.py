"""The common base of both parts of the broker, and the interface of a part."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from xbus.broker.configuration import Configuration
from xbus.broker.encryption import Encryption
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import LoginKind
from xbus.broker.logins import Caller, Credentials
from xbus.broker.metrics.families import Family
from xbus.broker.sessions import SessionLifetimes, Sessions
from xbus.clock import Clock
from xbus.config import Config
from xbus.ids import Ids
from xbus.passwords import Passwords
from xbus.rpc.context import Context
from xbus.rpc.server import Server
from xbus.supervision.health import Health

MESSAGE_OVERHEAD_BYTES = 64 * 1024
"""Bytes that a call may have beside its items."""


@dataclass(frozen=True)
class Shared:
    """The common base of both parts; all their work runs in ``tasks``, and an error there ends the broker.

    Args:
        has_back: whether the back runs in this process.
    """

    config: Config
    context: Context
    journal: Journal
    configuration: Configuration
    clock: Clock
    ids: Ids
    passwords: Passwords
    health: Health
    tasks: asyncio.TaskGroup
    encryption: Encryption
    has_back: bool


class BrokerPart(Protocol):
    """Front or back."""

    name: str

    def bind(self) -> dict[str, str]:
        """Open its ports; nothing is read from them yet. Returns where clients connect to, each behind its name."""

    async def recover(self) -> None:
        """Take up what the last run left in the journal, before any part serves.

        The back goes before the front, which cancels requests that the back must know of.
        """

    async def start(self) -> None:
        """Begin to serve."""

    async def refresh_figures(self) -> None:
        """Look at figures that are not in memory, for metrics."""

    def families(self) -> Iterator[Family]:
        """Show its figures, for metrics."""

    async def stop(self, seconds: float) -> None:
        """Take nothing new, finish running work within this time, and close."""

    def close(self) -> None:
        """Close its ports, whether it began to serve or not; closing again does nothing."""


def sessions(
    shared: Shared,
    kind: LoginKind,
    lifetimes: SessionLifetimes,
    in_use: Callable[[int], bool],
    port: Callable[[], Server],
) -> Sessions:
    """Make the sessions of the emitters, or of the roles.

    Args:
        lifetimes: how long a token lasts.
        in_use: whether the sessions of somebody must not expire now.
        port: gives the server by which they log in.
    """

    def caller() -> Caller:
        return Caller(port().caller, port().caller_address, port().caller_key)

    def let_in(connection: bytes) -> None:
        port().let_in(connection)

    def may_use(owner_id: int, key: str) -> bool:
        return shared.configuration.may_use(kind, owner_id, key)

    return Sessions(
        shared.journal,
        Credentials(shared.journal, kind, shared.passwords, shared.clock, caller, let_in, may_use),
        clock=shared.clock,
        ids=shared.ids,
        lifetimes=lifetimes,
        in_use=in_use,
        catch_up=shared.configuration.refresh,
    )


@dataclass(frozen=True, slots=True)
class PortAddresses:
    """The addresses of a part, as the configuration names them; ``encrypted`` is empty for none."""

    plain: str
    encrypted: str


def bind(shared: Shared, kind: LoginKind, server: Server, addresses: PortAddresses) -> dict[str, str]:
    """Open the ports of a part.

    Args:
        shared: has the keys.
        kind: whose keys may connect to the encrypted one.
        server: of the part, which has its name.
        addresses: where to listen.

    Returns:
        Where clients connect to: the address without encryption by the part's name, the other by ``name.curve``.
    """

    def allows(key: str) -> bool:
        return shared.configuration.has_key(kind, key)

    bound = {server.name: server.bind(addresses.plain)}
    door = shared.encryption.door(addresses.encrypted, server.name, allows)
    if door is not None:
        bound[f"{server.name}.curve"] = server.bind_encrypted(door)
        shared.configuration.on_change(server.cut_off_keys)
    return bound
