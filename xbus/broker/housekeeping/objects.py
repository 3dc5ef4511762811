"""Removes objects to which nothing refers any more: what retention left, and what a crash left."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice

from xbus.broker.housekeeping.looks import pause_after
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.objects import removal
from xbus.broker.journal.objects.claiming import StoreRow, is_own, read_stores
from xbus.broker.journal.objects.opening import open_store
from xbus.broker.journal.objects.stores import ListedObject, ObjectStore
from xbus.clock import Clock
from xbus.errors import XbusError
from xbus.periodic import every
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

CODE = "objects_unavailable"

LOOK_SECONDS = 60.0
"""Seconds between looks for objects that retention has left. Smaller frees space sooner."""

SWEEP_SECONDS = 24 * 3600.0
"""Seconds between looks through the whole of each store, for what crashes have left there."""

SWEEP_AGAIN_SECONDS = 3600.0
"""Seconds until a sweep that failed is begun anew. Smaller frees space sooner, and lists whole stores more often."""

LEFT_SECONDS = 24 * 3600.0
"""Seconds after which an object without a segment was left by a crash. Clocks of stores may differ by less."""

PAGE = 200
"""Objects that are looked up, and removed, at once."""


class ObjectRemover:
    """Removes objects from the stores that are this journal's own; what a copy of the journal shares it leaves alone.

    Args:
        journal: says what is not needed any more.
        clock: measures ages.
        health: shows a store that can't be reached.
    """

    def __init__(self, journal: Journal, clock: Clock, health: Health) -> None:
        self._journal = journal
        self._clock = clock
        self._health = health
        self._first_sweep = clock.monotonic() + LOOK_SECONDS
        self._next_sweep: dict[int, float] = {}
        """By the id of a store, when it is swept; without an entry it is at the first sweep."""

    async def watch(self) -> None:
        """Remove what is not needed any more, for ever."""
        await every(LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Remove it once, and sweep the stores where that is due; a later look makes up for what fails.

        A store that fails keeps nothing from being removed in others.
        """
        errors: list[XbusError] = []
        try:
            journal, rows = await self._journal.read(read_stores)
            for row in rows:
                try:
                    await self._tend(row, journal)
                except XbusError as error:
                    errors.append(error)
            until = self._clock.now() - timedelta(seconds=removal.FORGET_SECONDS)
            if await self._journal.read(removal.has_removed, until):
                await self._journal.run(removal.forget_removed, until)
        except XbusError as error:
            errors.append(error)
        for each in errors:
            # Health answers everybody, and the words of a storage may name places and users.
            log.warning("objects not removed: %s", each, extra={"action": "objects_not_removed"})
        if any(each.code == CODE for each in errors):
            self._health.trouble(CODE, "an object store can't be used now", "see the log at action=objects_not_removed")
        elif not errors:
            self._health.over(CODE)

    async def _tend(self, row: StoreRow, journal: str) -> None:
        """Remove objects of a store, if it is this journal's own.

        Raises:
            XbusError: the database or the store does not do it now.
        """
        store = await asyncio.to_thread(open_store, row.place)
        if not await asyncio.to_thread(is_own, store, row.mark, journal):
            return
        now = self._clock.monotonic()
        if now >= self._next_sweep.get(row.id, self._first_sweep):
            self._next_sweep[row.id] = now + SWEEP_AGAIN_SECONDS
            await self._sweep(row, store)
            self._next_sweep[row.id] = self._clock.monotonic() + SWEEP_SECONDS
        await self._remove(row, store)

    async def _sweep(self, row: StoreRow, store: ObjectStore) -> None:
        """Doom what lies in a store for long, and has no segment."""
        listed = store.listed()
        while page := await asyncio.to_thread(_page, listed):
            began = self._clock.monotonic()
            until = self._clock.now().timestamp() - LEFT_SECONDS
            old = [each.hash for each in page if each.written_at < until]
            left = set(old) - await self._journal.read(removal.find_used, row.id, old)
            if left:
                await self._journal.run(removal.doom, [(row.id, digest) for digest in left])
            await pause_after(began, self._clock)

    async def _remove(self, row: StoreRow, store: ObjectStore) -> None:
        """Remove the doomed objects of a store."""
        removed = 0
        while doomed := await self._journal.read(removal.read_doomed, row.id, PAGE):
            began = self._clock.monotonic()
            unused = await self._journal.run(removal.spare_used, row.id, doomed)
            await asyncio.to_thread(_remove, store, unused)
            await self._journal.run(removal.note_removed, row.id, unused, self._clock.now())
            removed += len(unused)
            await pause_after(began, self._clock)
        if removed:
            log.info("removed %d objects that nothing refers to", removed, extra={"action": "objects_removed"})


def _page(listed: Iterator[ListedObject]) -> list[ListedObject]:
    return list(islice(listed, PAGE))


def _remove(store: ObjectStore, hashes: list[bytes]) -> None:
    for digest in hashes:
        store.remove(digest)
