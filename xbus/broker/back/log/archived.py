"""Asks for envelopes that somebody reads and only an archive has; housekeeping has them put back."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

MOST_AT_ONCE = 256
"""Envelopes that one command puts back at the most. More make fewer commands, and later first items."""


class ArchiveDemand:
    """The archived envelopes that are wanted, in the order in which somebody met them.

    It keeps only what nobody has dealt with yet: who still misses an envelope after that asks again.
    """

    def __init__(self) -> None:
        self._wanted: dict[UUID, None] = {}
        self._asked = asyncio.Event()
        self._settled = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    def on_settled(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever some of them may be in the journal again."""
        self._listeners.append(listener)

    def want(self, envelope_ids: Iterable[UUID]) -> None:
        """Ask for envelopes."""
        self._wanted.update(dict.fromkeys(envelope_ids))
        self._asked.set()

    async def bring_back(self, envelope_ids: Sequence[UUID]) -> None:
        """Ask for envelopes, and wait until somebody has tried to put them back."""
        self.want(envelope_ids)
        while not self._wanted.keys().isdisjoint(envelope_ids):
            await self._settled.wait()

    async def next(self) -> list[UUID]:
        """Wait until something is wanted; give the first of it."""
        while not self._wanted:
            self._asked.clear()
            await self._asked.wait()
        return list(self._wanted)[:MOST_AT_ONCE]

    def settle(self, envelope_ids: Iterable[UUID]) -> None:
        """Forget envelopes that are back, or can't be put back now, and have all look again that wait for one."""
        for envelope_id in envelope_ids:
            self._wanted.pop(envelope_id, None)
        settled, self._settled = self._settled, asyncio.Event()
        settled.set()
        for listener in self._listeners:
            listener()
