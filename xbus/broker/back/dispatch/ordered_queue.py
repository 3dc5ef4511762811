"""Delivery rows of roles that want order: of each ordering key the lowest goes first, and one after another."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import takewhile
from typing import Protocol, TypeAlias

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import RESERVE_POSITIONS, ConsumerRoles, DeliveryLedger, First
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.log.ordered import HeldKey, read_key_rows, read_states
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow
from xbus.clock import Clock
from xbus.states import DeliveryState

CHECK_SECONDS = 5.0
"""Seconds between looks whether a person has resumed or dropped a parked envelope."""

PAGE_ROWS = RESERVE_POSITIONS
"""The rows that are read at once, and handed over before the first is known to be settled."""

Due: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[DeliveryRow]]]
"""The rows at some positions that could be handed over now."""


CHECKED_ROWS = 500


class HandOver(Protocol):
    """Begins to bring an envelope to a recipient."""

    def __call__(
        self, recipient: ServedRole, row: DeliveryRow, envelope: LogEnvelope | None = None
    ) -> Awaitable["asyncio.Task[None] | None"]:
        """The run, or None where there is none; ``envelope`` is that of the row, where it has been read."""


class OrderedQueue:
    """Answers ``RetryQueue`` about roles that want order.

    Args:
        roles: which of their keys have rows.
        log: where rows are read.
        ledger: where they are changed.
        clock: measures when a look is due.
    """

    def __init__(self, roles: ConsumerRoles, log: LogReader, ledger: DeliveryLedger, clock: Clock) -> None:
        self._roles = roles
        self._log = log
        self._ledger = ledger
        self._clock = clock

    def concerns(self, recipient: ServedRole) -> bool:
        """Check whether a recipient's role wants order."""
        return self._roles[recipient.role.id].keys.is_wanted

    def coming(self, role_id: int, served: Collection[str]) -> Sequence[int] | None:
        """The positions of the first rows of a role that may come by themselves now. None where it wants no order."""
        keys = self._roles[role_id].keys
        return keys.coming(served)[:PAGE_ROWS] if keys.is_wanted else None

    async def deliver(self, recipient: ServedRole, served: Collection[str], due: Due, hand_over: HandOver) -> bool:
        """Bring a recipient what of its rows could go now, one after another; false where that is nothing.

        Args:
            served: the worker services that are there.
        """
        keys = self._roles[recipient.role.id].keys
        await self._check(recipient.role.id)
        # What is noted from here on may not be found yet by what is read.
        asked = keys.to_read()
        await self._ledger.written()
        found_some = False
        for key in asked:
            found_some |= await self._deliver_key(recipient, key, hand_over)
        for positions in portions(keys.coming(served), PAGE_ROWS):
            for row in await due(positions):
                found_some = True
                await _until_over(await hand_over(recipient, row))
        return found_some

    async def _deliver_key(self, recipient: ServedRole, key: HeldKey, hand_over: HandOver) -> bool:
        """Bring what was held of a key and is free; false where its lowest row is not."""
        keys = self._roles[key.role_id].keys
        rows = await self._log.read(read_key_rows, key.role_id, key.ordering_key, PAGE_ROWS)
        keys.found(key, rows[0] if rows else None)
        is_free = not rows or rows[0].state is DeliveryState.HELD
        held = list(takewhile(lambda row: row.state is DeliveryState.HELD, rows))
        for row, envelope in zip(held, await self._log.at([row.position for row in held]), strict=True):
            if not keys.take_up(row):
                break
            await _until_over(await hand_over(recipient, row, envelope))
        return is_free

    async def _check(self, role_id: int) -> None:
        keys = self._roles[role_id].keys
        now = self._clock.monotonic()
        if keys.checked_at is not None and now - keys.checked_at < CHECK_SECONDS:
            return
        keys.checked_at = now
        states: dict[int, DeliveryState] = {}
        await self._ledger.written()
        for positions in portions(keys.firsts(First.ON_ITS_OWN, First.PARKED), CHECKED_ROWS):
            states |= await self._log.read(read_states, role_id, positions)
        keys.check(states)


async def _until_over(run: "asyncio.Task[None] | None") -> None:
    if run is not None:
        await asyncio.wait([run])
