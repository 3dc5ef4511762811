"""Reading the log: where it ends, what it holds, whom an envelope is owed to; slices of it for readers."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.back.log.note import DeliveryNote
from xbus.broker.back.log.small import SMALL_BYTES, SmallEnvelope
from xbus.broker.back.log.tail import LogTail, NewestItems
from xbus.broker.journal.bulk.outputs import BEGINNING, read_output, read_output_items, read_output_page
from xbus.broker.journal.commit.committer import NOTHING_SEEN, SeenEnd
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log import catalog
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, find_for_services
from xbus.broker.journal.log.overlays import EventOverlay, read_overlays
from xbus.broker.journal.log.reading import (
    LogEnvelope,
    LogEvent,
    find_archived,
    read_at,
    read_ends,
    read_log,
    read_segments,
    read_small_events,
)
from xbus.broker.journal.log.sessions import read_emitter_logins
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.listing import EventLists, read_types
from xbus.broker.journal.log.slices.values import Place, Slice, SliceBounds, Stretch
from xbus.broker.journal.operations.corrections import read_corrected_events
from xbus.broker.journal.writes import Sealed
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.errors import JournalError, JournalUnavailable, WentBack
from xbus.graph import Graph
from xbus.rpc.bell import Bell

log = logging.getLogger(__name__)


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


T = TypeVar("T")


class OutputIncomplete(JournalError):
    """Some of an output is not there any more."""


AHEAD_SECONDS = 1.0
"""Seconds for which readers get a slice that was read ahead. More hide corrections and removals for longer; fewer read
it twice for programs that take their time."""

MOST_AHEAD = 4
"""Slices that are read ahead, or kept for their readers, at a time. More take memory, up to 4 MiB each."""

POLL_SECONDS = 1.0
"""Wake-ups may get lost, so the head is looked at this often anyway."""

PAGE_ENVELOPES = 256
"""How many envelopes are read at once. More spares round trips and takes memory."""

PAGE_BYTES = 4 * 1024 * 1024
"""How much of an event is read at once."""

RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some of the log.

    Args:
        envelopes: in position order.
        upto: nobody for whom it was read is owed anything else up to this position.
        small: each of them with its items, where it is small; None where nothing is known here of their items.
    """

    envelopes: Sequence[LogEnvelope]
    upto: int
    small: Sequence[SmallEnvelope | None] | None = None


class LogReader:
    """The sealed part of the journal, for those who deliver it.

    Every read waits for a database that is away: there is nothing that a deliverer could do without it.

    Args:
        journal: what is read.
        bell: rings when something was sealed.
        tail: keeps what this process seals.
    """

    def __init__(self, journal: Journal, bell: Bell, tail: LogTail | None = None) -> None:
        self._journal = journal
        self.tail = tail or LogTail()
        self._newest = NewestItems()
        self._bell = bell
        self.known_graphs: dict[int, Graph] = {}
        """The versions of event types' graphs that were read."""
        self.known_logins: dict[int, str | None] = {}
        """The logins of the emitters that were looked for; None for one that is not there."""
        self._corrected: set[bytes] = set()
        """The events whose segments hold items that are corrected for all."""
        self._newest_correction = 0
        self.archived = ArchiveDemand()
        self._end = NOTHING_SEEN
        self.head = 0
        """The position of the last envelope that is known of."""
        self.has_corrections = False
        """Whether items of any envelope are corrected for all."""
        self._listeners: list[Callable[[Sequence[Sealed]], None]] = []
        self._must_look = False
        """Whether this process has sealed a repeat since the last look."""
        self._now = asyncio.get_running_loop().time
        journal.on_stored(self._newest.add)
        journal.on_sealed(self._sealed)

    @property
    def tail_bytes(self) -> int:
        """The bytes of what was sealed or stored last, and is kept in memory."""
        return self.tail.size + self._newest.size

    async def read(self, statement: Callable[..., T], *args: Any) -> T:
        """Run a query as soon as the database can be read."""
        while True:
            try:
                return await self._journal.read(statement, *args)
            except JournalUnavailable as error:
                log.warning("the journal can't be read: %s", error, extra={"action": "journal_unread"})
                await asyncio.sleep(RETRY_SECONDS)

    async def refresh(self) -> None:
        """Look where the log ends, and what was corrected for all since the last look.

        Raises:
            WentBack: the log ends before the place up to which it was read, or has another envelope there.
        """
        self._must_look = False
        seen = self._end
        ends = await self.read(read_ends, seen.position)
        # An envelope that was removed says nothing.
        is_other = ends.seen_id is not None and seen.envelope_id is not None and ends.seen_id.bytes != seen.envelope_id
        if ends.position < seen.position or is_other:
            raise WentBack(0, seen.position, ends.position)
        if ends.correction > self._newest_correction:
            for number, event_id in await self.read(read_corrected_events, self._newest_correction):
                self._corrected.add(event_id.bytes)
                self.has_corrections = True
                self._newest_correction = number
        self._grow(SeenEnd(ends.position, None if ends.envelope_id is None else ends.envelope_id.bytes), ())

    def _sealed(self, sealed: Sequence[Sealed]) -> None:
        """Take up what this process has sealed: it need not be looked for."""
        # The correction of a repeat may be younger than the last look: the ring that follows looks for both.
        self._must_look = self.tail.add(sealed, self._now()) or self._must_look
        if not self._must_look:
            self._grow(SeenEnd(sealed[-1].last, sealed[-1].last_id), sealed)

    def _grow(self, end: SeenEnd, sealed: Sequence[Sealed]) -> None:
        if end.position > self.head:
            self._end, self.head = end, end.position
            self._journal.saw(end)
            for listener in self._listeners:
                listener(sealed)

    def on_grown(self, listener: Callable[[Sequence[Sealed]], None]) -> None:
        """Have ``listener`` called whenever the log has grown, with the new envelopes as far as they are known.

        These are the last ones of the log; others may lie before them.
        """
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[Sequence[Sealed]], None]) -> None:
        """Call a listener no more."""
        self._listeners = [each for each in self._listeners if each != listener]

    async def follow(self, looked: Callable[[], None]) -> None:
        """For ever: look where the log ends whenever the bell rings, and now and then.

        It rings for what another process has sealed, and for repeats; all else of this process is known without a look.

        Args:
            looked: called after each look: whoever else was meant by the bell looks too.
        """
        while True:
            await self.refresh()
            looked()
            await self._bell.wait(POLL_SECONDS)

    async def page(self, after: int, services: Collection[str]) -> LogPage:
        """Read the next envelopes above ``after``.

        Far behind the head the table of contents says where those are that lead to some consumer services, so that the
        others need not be read. Near the head all are read: they are not listed yet.

        Args:
            services: those of the roles for which it is read.
        """
        newest, small = self.tail.after(after, PAGE_ENVELOPES)
        if newest:
            return LogPage(newest, newest[-1].position, small)
        head = self.head
        if head - after > BLOCK_POSITIONS:
            listed = await self.read(find_for_services, services, after, PAGE_ENVELOPES)
            if listed.upto > after:
                found = await self.at(listed.positions) if listed.positions else []
                return await self._readable(LogPage(found, listed.upto), services)
        found = await self.read(read_log, after, PAGE_ENVELOPES)
        return await self._readable(LogPage(found, found[-1].position if found else head), services)

    async def _readable(self, page: LogPage, services: Collection[str]) -> LogPage:
        """Give a page up to the first envelope that only an archive has; that itself is waited for.

        Roles that begin in the past meet such envelopes; nothing is archived that a role is owed.
        """
        without = [envelope.position for envelope in page.envelopes if not envelope.events]
        archived = await self.read(find_archived, without, services) if without else {}
        if not archived:
            return page
        first = min(archived)
        before = [envelope for envelope in page.envelopes if envelope.position < first]
        if not before:
            await self.archived.bring_back(list(archived.values()))
        return LogPage(before, first - 1)

    async def small(self, envelopes: Sequence[LogEnvelope]) -> dict[int, SmallEnvelope]:
        """Read those of some envelopes that are small, with their items, by position.

        Envelopes that are too large for one read together are left out.
        """
        small = [envelope for envelope in envelopes if envelope.size <= SMALL_BYTES]
        sizes = accumulate(envelope.size for envelope in small)
        fitting = [envelope for envelope, upto in zip(small, sizes, strict=True) if upto <= PAGE_BYTES]
        if not fitting:
            return {}
        event_ids = [event.segments_id for envelope in fitting for event in envelope.events]
        found = await self.read(read_small_events, event_ids)
        smalls = [
            SmallEnvelope.of_segments(envelope, [found.get(event.segments_id, ()) for event in envelope.events])
            for envelope in fitting
        ]
        return {small.position: small for small in smalls if small is not None}

    async def at(self, positions: Sequence[int]) -> list[LogEnvelope]:
        """The envelopes at some positions, in position order."""
        return await self.read(read_at, positions)

    async def graph(self, graph_id: int) -> Graph:
        """A version of an event type's graph; versions never change, but by SQL.

        One that leads to a service that does not exist is waited for, as nobody knows whom its events are owed to.
        Health tells of it until somebody has corrected it.
        """
        while graph_id not in self.known_graphs:
            found = await self.read(catalog.read_graph, graph_id)
            if found.lacks_services:
                cause = "leads to a service that does not exist"
                log.error("graph %s %s", graph_id, cause, extra={"action": "graph_wrong"})
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.known_graphs[graph_id] = found
        return self.known_graphs[graph_id]

    def forget_graphs(self) -> None:
        """Read all graphs anew: somebody has edited some."""
        self.known_graphs.clear()

    async def graphs(self, envelope: LogEnvelope) -> list[Graph]:
        """The graphs of an envelope's events."""
        return [await self.graph(graph_id) for graph_id in sorted({event.graph_id for event in envelope.events})]

    async def note(self, envelope: LogEnvelope, attempt: int = 1) -> DeliveryNote:
        """The note that goes with an envelope.

        Args:
            attempt: how often it is handed over, with this time.
        """
        logins = await self.emitter_logins([envelope.emitter_id])
        return DeliveryNote.of(envelope, logins[envelope.emitter_id], attempt)

    async def emitter_logins(self, emitter_ids: Collection[int]) -> Mapping[int, str | None]:
        """The logins of some emitters, and of others; None for one that is not there."""
        if unknown := [each for each in emitter_ids if each not in self.known_logins]:
            self.known_logins.update(await self.read(read_emitter_logins))
            for emitter_id in unknown:
                # One that is not there stays so: it is looked for once.
                self.known_logins.setdefault(emitter_id, None)
        return self.known_logins

    async def overlays(self, envelope: LogEnvelope, role_id: int | None = None) -> Mapping[UUID, EventOverlay]:
        """Read how events differ from those that were sent, by event id; mostly none does, and nothing is read.

        Args:
            role_id: the role that is to get it on its own; None for those who get it in its turn.
        """
        if role_id is None and not self.is_corrected(envelope):
            return {}
        return await self.read(read_overlays, role_id, envelope.envelope_id)

    def is_corrected(self, envelope: LogEnvelope) -> bool:
        """Check whether items of an envelope are corrected for all."""
        return self.has_corrections and any((event.origin or event.id) in self._corrected for event in envelope.events)

    async def items(self, event: LogEvent) -> AsyncIterator[RunBatch]:
        """The items of an event, in index order, small neighbours joined."""
        index = 0
        for batch in join_small(self.tail.segments([event.segments_id]).get(event.segments_id, ())):
            yield batch
            index = batch.first_index + batch.items
        while index < event.items:
            wanted = (event.segments_id, index, PAGE_BYTES)
            segments = self._newest.following(*wanted) or await self.read(read_segments, *wanted)
            if not segments:
                raise JournalError(f"event {event.event_id} misses its items from index {index} on")
            for batch in join_small(segments):
                yield batch
            index = segments[-1].first_index + segments[-1].items

    async def output(self, attempt_id: UUID) -> AsyncIterator[RunBatch]:
        """Read the output of a bulk worker's attempt, in the order of its segments.

        Raises:
            OutputIncomplete: some of it was removed, as by an archive: what is left must not pass for the whole.
        """
        after = BEGINNING
        items = 0
        while segments := await self.read(read_output, attempt_id, after, PAGE_BYTES):
            for segment in segments:
                yield RunBatch.of_output(segment)
                items += segment.items
            after = segments[-1].place
        await self._check_output(attempt_id, items)

    async def output_pages(self, attempt_id: UUID) -> AsyncIterator[OutputPage]:
        """Read where the segments of an output lie, in their order, for those who have the journal copy them.

        Raises:
            OutputIncomplete: as of :meth:`output`.
        """
        after = BEGINNING
        items = 0
        while (page := await self.read(read_output_page, attempt_id, after, PAGE_BYTES)) is not None:
            yield page
            items += page.items
            after = page.last
        await self._check_output(attempt_id, items)

    async def _check_output(self, attempt_id: UUID, items: int) -> None:
        if await self.read(read_output_items, attempt_id) != items:
            raise OutputIncomplete(f"the output of attempt {attempt_id} misses items: {items} are there")


_Wanted: TypeAlias = tuple[frozenset[int], tuple[Stretch, ...], SliceBounds]
"""The question by which a slice is read: the types, the stretches, and the bounds."""


class LogSlices:
    """Reads slices of the log, and wakes whoever waits for events of some types.

    Who waits costs nothing until such an event is sealed. Envelopes that were sealed just now are read in memory. Lists
    of older events are kept, so that several ranges that stand near each other share them.

    Args:
        log: is read; it knows where the log ends, and has archived envelopes brought back.
    """

    def __init__(self, log: LogReader) -> None:
        self._log = log
        log.archived.on_settled(self._wake_all)
        self._lists = EventLists()
        self._ahead: dict[_Wanted, asyncio.Task[Slice | None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        """Where slices are read ahead, once the log is followed."""
        self._waiting: defaultdict[int, set[asyncio.Future[None]]] = defaultdict(set)
        self._sealed_types: set[int] = set()
        """The types of what this process has sealed since it woke somebody last."""
        self._noted_until = 0
        """The types of newer envelopes are in there up to this position, if the log was followed without a gap."""
        self._seen = 0
        self._grown = asyncio.Event()

    @property
    def head(self) -> int:
        """The position of the last envelope that is known of."""
        return self._log.head

    async def read(self, types: frozenset[int], stretches: Sequence[Stretch], bounds: SliceBounds) -> Slice:
        """Read a slice, see :func:`read_slice`, as soon as the database can be read.

        Returns:
            The events found. There may be none though the log goes on: whoever looks for more reads on at ``to``, after
            :meth:`beyond`. Events that only an archive has are asked for: who waits is woken when it is back.
        """
        found = None
        if (ahead := self._ahead.pop((types, tuple(stretches), bounds), None)) is not None:
            # Not by itself: it may be cancelled when the back stops, and whoever waits for it is not.
            await asyncio.wait([ahead])
            found = None if ahead.cancelled() else ahead.result()
        if found is None or found.ends_log or found.archived:
            # Behind the end of the log more may have come, and back of the archive.
            found = await self._read(types, stretches, bounds)
        return found

    def read_ahead(self, types: frozenset[int], stretches: Sequence[Stretch], bounds: SliceBounds) -> None:
        """Read a slice while a program works on the one before it; ``read`` gives it within ``AHEAD_SECONDS``."""
        wanted = types, tuple(stretches), bounds
        if self._tasks is not None and len(self._ahead) < MOST_AHEAD and wanted not in self._ahead:
            ahead = self._tasks.create_task(self._read_for_later(wanted), name="a slice that is read ahead")
            self._ahead[wanted] = ahead
            ahead.add_done_callback(partial(self._keep, wanted))

    async def _read_for_later(self, wanted: _Wanted) -> Slice | None:
        """Read a slice; None where it can't be read, as its reader will be told."""
        try:
            return await self._read(*wanted)
        except Exception as error:
            log.info("a slice is not read ahead: %s", error, extra={"action": "slice_unread"})
            return None

    def _keep(self, wanted: _Wanted, ahead: "asyncio.Task[Slice | None]") -> None:
        """Keep a slice until it is too old."""

        def forget() -> None:
            if self._ahead.get(wanted) is ahead:
                del self._ahead[wanted]

        asyncio.get_running_loop().call_later(AHEAD_SECONDS, forget)

    async def _read(self, types: frozenset[int], stretches: Sequence[Stretch], bounds: SliceBounds) -> Slice:
        tail = self._log.tail
        now = asyncio.get_running_loop().time()
        begin = min([stretch.position for stretch in stretches]).position
        logins = await self._log.emitter_logins(tail.emitters(begin, now))
        newest = tail.slice(types, stretches, bounds, now, logins)
        if newest is not None:
            return newest
        found = await self._log.read(read_slice, types, stretches, bounds, self._lists.page)
        if found.archived:
            self._log.archived.want(map(UUID, found.archived))
        return found

    async def beyond(self, types: Iterable[int], place: Place, *, is_archived: bool = False) -> None:
        """Wait until the log goes beyond a place. At its head wait until an event of one of the types is sealed.

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
        if not any(self._waiting.values()):
            # Who begins to wait sees what was sealed before without being woken.
            self._seen = self._noted_until = self._log.head
            self._sealed_types.clear()
            self._log.unlisten(self._grew)
            self._log.on_grown(self._grew)
        if place.position <= self._log.head and not woken.done():
            woken.set_result(None)
        for each in types:
            self._waiting[each].add(woken)
        try:
            yield
        finally:
            for each in types:
                self._waiting[each].discard(woken)
            if not any(self._waiting.values()):
                self._log.unlisten(self._grew)

    async def follow(self) -> None:
        """For ever: wake those who wait for what was sealed, and read ahead."""
        self._seen = self._noted_until = self._log.head
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    await self._grown.wait()
                    self._grown.clear()
                    head = self._log.head
                    self._wake(await self._types_until(head))
                    self._seen = head
        finally:
            # Programs are answered until the end, and read for themselves.
            self._tasks = None

    def _grew(self, sealed: Sequence[Sealed]) -> None:
        """Note the types of what this process has sealed; they need not be looked up, unless it came in parts."""
        for each in sealed:
            types = each.type_ids
            if types is None or each.first != self._noted_until + 1:
                break
            self._noted_until = each.last
            self._sealed_types.update(types)
        self._grown.set()

    async def _types_until(self, head: int) -> set[int]:
        """The types of what was sealed since the last time, with others where more was sealed meanwhile."""
        found, self._sealed_types = self._sealed_types, set()
        if self._noted_until != head:
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
