"""Slices of the log for those who read at their own pace, and wake-ups for those who wait for more."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from xbus.broker.back.log.newest import NewestEnvelopes
from xbus.broker.back.log.reader import LogReader
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.slices import (
    EventLists,
    Place,
    Slice,
    SliceBounds,
    Stretch,
    read_slice,
    read_types,
)
from xbus.broker.journal.writes import Sealed


class LogSlices:
    """Reads slices of the log, and wakes whoever waits for events of some types.

    Who waits costs nothing until such an event is sealed. What was sealed just now is read in memory. Lists of older
    events are kept, so that several ranges that stand near each other share them.

    Args:
        journal: what is read.
        log: knows where the log ends, and has archived envelopes brought back.
        newest: keeps what was sealed just now.
    """

    def __init__(self, journal: Journal, log: LogReader, newest: NewestEnvelopes | None = None) -> None:
        self._log = log
        log.archived.on_settled(self._wake_all)
        self._lists = EventLists()
        self._newest = newest or NewestEnvelopes()
        self._waiting: defaultdict[int, set[asyncio.Future[None]]] = defaultdict(set)
        self._sealed_types: set[int] = set()
        """The types of what this process has sealed since it woke somebody last."""
        self._noted_until = 0
        """All that was sealed since is in there up to this position, if the log was followed without a gap."""
        self._seen = 0
        self._grown = asyncio.Event()
        journal.on_sealed(self._sealed)
        log.on_grown(self._grew)

    @property
    def head(self) -> int:
        """The position of the last envelope that is known of."""
        return self._log.head

    async def read(self, types: frozenset[int], stretches: Sequence[Stretch], bounds: SliceBounds) -> Slice:
        """Read a slice, see :func:`read_slice`, as soon as the database can be read.

        Returns:
            What was found. It may be nothing though the log goes on: whoever looks for more reads on at ``to``, after
            :meth:`beyond`. What only an archive has is asked for: who waits is woken when it is back.
        """
        logins = await self._log.emitter_logins(self._newest.emitters)
        now = asyncio.get_running_loop().time()
        newest = self._newest.read(types, stretches, bounds, now, logins)
        if newest is not None:
            return newest
        found = await self._log.read(read_slice, types, stretches, bounds, self._lists.page)
        if found.archived:
            self._log.archived.want(map(UUID, found.archived))
        return found

    async def beyond(self, types: Iterable[int], place: Place, *, is_archived: bool = False) -> None:
        """Wait until the log goes beyond a place; at its head until an event of one of the types is sealed.

        Args:
            is_archived: whether what follows has to come back of an archive first.
        """
        woken = asyncio.get_running_loop().create_future()
        with self.waking(types, Place(self._log.head + 1) if is_archived else place, woken):
            await woken

    @contextmanager
    def waking(self, types: Iterable[int], place: Place, woken: "asyncio.Future[None]") -> Iterator[None]:
        """Have a future done when :meth:`beyond` would end, for the time of the block."""
        types = tuple(types)
        if place.position <= self._log.head and not woken.done():
            woken.set_result(None)
        for each in types:
            self._waiting[each].add(woken)
        try:
            yield
        finally:
            for each in types:
                self._waiting[each].discard(woken)

    async def follow(self) -> None:
        """For ever: wake those who wait for what was sealed."""
        self._seen = self._noted_until = self._log.head
        while True:
            await self._grown.wait()
            self._grown.clear()
            head = self._log.head
            self._wake(await self._types_until(head))
            self._seen = head

    def _grew(self, _: Sequence[Sealed]) -> None:
        if any(self._waiting.values()):
            self._grown.set()
        elif not self._grown.is_set():
            # Nobody waits for it, and who comes from now on sees it without being woken.
            self._seen = self._log.head

    def _sealed(self, sealed: Sequence[Sealed]) -> None:
        """Note what this process has sealed: its types need not be looked up, unless it came in parts."""
        self._newest.add(sealed, asyncio.get_running_loop().time())
        for each in sealed:
            types = each.type_ids
            if types is None or each.first != self._noted_until + 1:
                return
            self._noted_until = each.last
            self._sealed_types.update(types)

    async def _types_until(self, head: int) -> set[int]:
        """The types of what was sealed since the last time, with others where more was sealed meanwhile."""
        found = set(self._sealed_types)
        if self._noted_until > head:
            # The head of the log lags behind: who reads up to there waits for the same types again.
            return found
        self._sealed_types.clear()
        if self._noted_until == head:
            return found
        self._noted_until = head
        if any(self._waiting.values()):
            found |= await self._log.read(read_types, self._seen, head)
        return found

    def _wake_all(self) -> None:
        self._wake(list(self._waiting))

    def _wake(self, types: Iterable[int]) -> None:
        for each in types:
            for woken in self._waiting.pop(each, ()):
                if not woken.done():
                    woken.set_result(None)
