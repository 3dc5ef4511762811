"""A consumer role, as one object: its cursor, blocked keys, breaker, and what is in flight to it."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator

from xbus.broker.back.progress.blocked_keys import BlockedKeys
from xbus.broker.back.progress.in_flight import InFlight
from xbus.broker.back.recipients import CircuitBreaker, CircuitBreakers, RecipientProxy
from xbus.broker.journal.writes.cursor import Cursor


class Reservations:
    """The positions up to which hand-overs are reserved, each durable from some note of the ledger on; pure."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque()

    def add(self, position: int, noted: int) -> None:
        """Note that hand-overs up to ``position`` are durable as soon as the ledger has written so many notes."""
        self._steps.append((position, noted))

    def noted_for(self, position: int) -> int:
        """Give the number of notes that make a hand-over at ``position`` durable; those below it are not asked again,
        or get a number that is too high, but never too low."""
        while self._steps and self._steps[0][0] < position:
            self._steps.popleft()
        return self._steps[0][1] if self._steps else 0


class ConsumerRole:
    """One consumer role, whether its recipient is there or not.

    Args:
        role_id: which one.
        breaker: open while one envelope after the other fails at it.
    """

    def __init__(self, role_id: int, breaker: CircuitBreaker) -> None:
        self.id = role_id
        self.breaker = breaker
        self.cursor: Cursor | None = None
        """Its progress in the log; None if the journal has no cursor of it yet."""
        self.keys = BlockedKeys(role_id)
        """Which ordering keys wait for an earlier envelope."""
        self.in_flight = InFlight()
        """What runs are bringing to it."""
        self.last_run: tuple[RecipientProxy, asyncio.Task[None]] | None = None
        """The task that brings it what began last, and to which recipient."""
        self.reservations = Reservations()
        """How far hand-overs to it are reserved."""
        self.seen = 0
        """The highest position that a lane has passed for it: what is unsettled up to here is owed."""


class ConsumerRoles:
    """All consumer roles that anything was asked about, by their ids.

    Args:
        breakers: those of all roles, as workers have them too.
    """

    def __init__(self, breakers: CircuitBreakers) -> None:
        self._breakers = breakers
        self._roles: dict[int, ConsumerRole] = {}

    def __getitem__(self, role_id: int) -> ConsumerRole:
        role = self._roles.get(role_id)
        if role is None:
            role = self._roles[role_id] = ConsumerRole(role_id, self._breakers[role_id])
        return role

    def __iter__(self) -> Iterator[ConsumerRole]:
        return iter(self._roles.values())

    def want_order(self, role_ids: Collection[int]) -> set[int]:
        """Take it that these roles want order, and no others.

        Returns:
            Those of them that did not want it before.
        """
        roles = {*self._roles, *role_ids}
        return {role_id for role_id in roles if self[role_id].keys.want(role_id in role_ids)}
