"""One envelope that a node is making: in memory while it is small, else in the journal as it comes."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import repeat
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from xbus.broker.back.log import BundleEntry, DeliveryNote, RunBatch
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import EventType
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.segments import Content, content_hash
from xbus.broker.journal.objects.stowing import Order
from xbus.broker.journal.writes import (
    Append,
    Cancel,
    EndEvent,
    PutEnvelope,
    PutEvent,
    PutGroup,
    Seal,
    SealReceipt,
    StartEnvelope,
    StartEvent,
    Write,
)
from xbus.broker.journal.writes.bulk import AppendOutput, OutputPage
from xbus.clock import Clock
from xbus.envelope import EnvelopeHead
from xbus.errors import EnvelopeIdTaken, JournalError, JournalUnavailable, Refused
from xbus.headers import NO_TAGS, EventTags, pack_headers, unpack_headers
from xbus.ids import LONGEST_UUID, keyed_envelope_id, keyed_ids, numbered_event_id
from xbus.rpc.messages import HeadersMap
from xbus.states import EnvelopeState

log = logging.getLogger(__name__)


CORRELATION_ID = "correlation_id"


@dataclass(frozen=True)
class Derivation:
    """The facts of an envelope that go along to the one that a node makes of it.

    Args:
        source_id: of the delivered envelope.
        emitter_id: the emitter that the bus has for the node.
        head: that of the delivered envelope, with a ``correlation_id`` among its headers: its own id where it has none.
            The key is the id of the delivered envelope: by it a repeated delivery finds what the first one made.
        generation: how many envelopes of this derivation were cancelled before, as their delivery broke off.
    """

    source_id: str
    emitter_id: int
    head: EnvelopeHead
    generation: int = 0

    @cached_property
    def envelope_id(self) -> UUID:
        """The id of the made envelope."""
        return keyed_envelope_id(self.emitter_id, self.source_id, self.generation)

    def event_id(self, number: int) -> UUID:
        """Compute the id of the event of this number, from 1."""
        return numbered_event_id(self.envelope_id, number)


def derive(source_id: str, emitter_id: int, note: DeliveryNote | None, said: HeadersMap) -> Derivation:
    """Tell what goes along.

    Args:
        source_id: of the delivered envelope, as the bus writes it.
        note: of that.
        said: the headers that came with its first event.
    """
    ordering_key = None if note is None else note.ordering_key
    headers = _correlated(source_id, said.get("envelope_headers"))
    return Derivation(source_id, emitter_id, EnvelopeHead(ordering_key, source_id, headers))


_HEADERS_BEFORE_ID = (pack_headers({CORRELATION_ID: "0" * LONGEST_UUID}) or b"")[:-LONGEST_UUID]
"""Packed headers with nothing but a correlation id, up to that id."""


def _correlated(source_id: str, headers: bytes | None) -> bytes | None:
    """Add a correlation id to headers that have none, unless they are as large as headers may be."""
    if headers is None:
        return _HEADERS_BEFORE_ID + source_id.encode()
    told: Mapping[str, object] = unpack_headers(headers)
    if CORRELATION_ID in told:
        return headers
    try:
        return pack_headers({**told, CORRELATION_ID: source_id})
    except Refused:
        return headers


def tags_of(said: HeadersMap) -> EventTags:
    """Give the headers and the partition key of an event, which go along as they are."""
    tags = EventTags(said.get("headers"), said.get("partition_key"))
    return NO_TAGS if tags == NO_TAGS else tags


Delivered: TypeAlias = tuple[EventType, int, BundleEntry]
"""A whole envelope as it came, behind the type that its node emits and the emitter of a ``Derivation``. It is a plain
tuple, as no function of Python makes those."""


def find_plain(delivered: Sequence[Delivered]) -> list[bool]:
    """Check which envelopes have one event of one batch of items, so that they may go in a group."""
    of_each = [entry[1] for _, _, entry in delivered]
    return [len(events) == 1 and len(events[0][2]) == 1 and events[0][2][0][1] > 0 for events in of_each]


def group_of(plain: Sequence[Delivered], at: datetime) -> PutGroup:
    """Write the first envelopes that are made of plain ones, by columns: an ``Emission`` makes the same of each."""
    types, emitter_ids, entries = zip(*plain, strict=True)
    source_ids = [entry[0] for entry in entries]
    ordering_keys = [entry[2][2] if len(entry) > 2 else None for entry in entries]
    events = [entry[1][0] for entry in entries]
    said = [event[3] if len(event) > 3 else None for event in events]
    headers = [
        _HEADERS_BEFORE_ID + source_id.encode()
        if each is None
        else _correlated(source_id, each.get("envelope_headers"))
        for source_id, each in zip(source_ids, said, strict=True)
    ]
    tags = [NO_TAGS if each is None else tags_of(each) for each in said]
    data = [event[2][0][2] for event in events]
    return PutGroup(
        emitter_ids,
        at,
        *keyed_ids(emitter_ids, source_ids),
        [event_type.grouped for event_type in types],
        [event[2][0][1] for event in events],
        data,
        # No function of Python is called for each.
        [*map(tuple.__new__, repeat(EnvelopeHead), zip(ordering_keys, source_ids, headers, strict=True))],
        tags,
        sum(map(len, data))
        + sum(map(len, filter(None, headers)))
        + sum([each.size for each in tags if each is not NO_TAGS]),
    )


T = TypeVar("T")

SMALL_BYTES = 64 * 1024
"""With more items than this in bytes an envelope goes to the journal in parts. More spares writes and takes memory."""

BROKEN_OFF = "its delivery to the node that emits it was broken off"


@dataclass(slots=True)
class EmittedEvent:
    """An event that comes to the node.

    Args:
        type: as which it is emitted, with the graph that it takes.
        tags: its headers and its partition key.
    """

    type: EventType
    tags: EventTags
    number: int = 0
    """Its place in the envelope in the journal, from 1; 0 before it has one."""
    written: int = 0
    """The items that were handed to the journal."""
    held: list[RunBatch] = field(default_factory=list)
    """The items that were not."""
    digest: "hashlib._Hash | None" = field(default_factory=hashlib.sha256)
    """Of all that were; None once items were appended that nobody here has seen."""

    @property
    def items(self) -> int:
        """The number of its items so far."""
        return self.written + sum(batch.items for batch in self.held)

    def taken(self) -> tuple[int, int, bytes]:
        """Take the items that are held: the index of the first, their number, and their bytes."""
        first, items, data = self.written, sum(batch.items for batch in self.held), self.data
        self.written += items
        if self.digest is not None:
            self.digest.update(data)
        self.held.clear()
        return first, items, data

    def appended(self, page: OutputPage) -> int:
        """Count the items of a page, which nobody here sees; returns the index of the first."""
        first = self.written
        self.written += page.items
        self.digest = None
        return first

    @property
    def content(self) -> Content | None:
        """The part of it that the content hash covers, as one segment. None where that is not known."""
        if self.digest is None:
            return None
        return Content(self.type.hashed_name, self.written, (self.digest.digest(),), self.tags)

    @property
    def data(self) -> bytes:
        """The items that are held, one after the other."""
        return self.held[0].data if len(self.held) == 1 else b"".join([batch.data for batch in self.held])


class Emission:
    """An envelope that a node makes of one that it gets. Calls for it are carried out in the order of their coming.

    An event that brings no item makes no event, and an envelope without events is not made.

    Args:
        journal: writes it.
        clock: dates it.
        derivation: says what it is made of.
        retry_seconds: between two tries while the database is away, or the journal is full.
        may_emit: false while the journal is full.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        derivation: Derivation,
        retry_seconds: float,
        may_emit: Callable[[], bool] = lambda: True,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._derivation = derivation
        self._retry_seconds = retry_seconds
        self._may_emit = may_emit
        self._events: dict[str, EmittedEvent] = {}
        self._held_bytes = 0
        self._is_open = False
        self._is_sealed = False
        self._is_stopped = False
        self._turn = asyncio.Lock()

    def start_event(self, source_id: str, event_type: EventType, tags: EventTags) -> None:
        """Begin an event."""
        self._events.setdefault(source_id, EmittedEvent(event_type, tags))

    def hold(self, source_id: str, batch: RunBatch) -> None:
        """Take items of an event; they are in memory only."""
        if batch.items:
            self._events[source_id].held.append(batch)
            self._held_bytes += batch.size

    async def flush(self) -> None:
        """Hand outputs to the journal if they exceed what stays in memory, and wait until they are durable.

        Raises:
            JournalError: it could not be written.
        """
        if self._held_bytes:
            await self._room()
        async with self._turn:
            if self._held_bytes <= SMALL_BYTES and not self._is_open:
                return
            written = await self._write_held()
        await asyncio.gather(*written)

    async def append(self, source_id: str, page: OutputPage) -> None:
        """Have the journal append items that lie in an output, behind what is held, and wait until it is durable.

        Raises:
            JournalError: it could not be written, or the output misses some of them.
        """
        await self._room()
        event = self._events[source_id]
        async with self._turn:
            written = await self._write_held()
            if not self._is_sealed:
                written += map(self._write, [*self._begun(event), self._appending(event, page)])
        await asyncio.gather(*written)

    async def _write_held(self) -> "list[asyncio.Future[None]]":
        if not self._is_open and not self._is_sealed:
            await self._open()
        self._held_bytes = 0
        if self._is_sealed:
            for event in self._events.values():
                event.taken()
            return []
        return [self._write(write) for event in self._events.values() if event.held for write in self._parts(event)]

    async def _open(self) -> None:
        # A call that has waited behind the end of a delivery must leave nothing open.
        self._check_wanted()
        await self._pass_former()
        if not self._is_sealed:
            made = self._derivation
            self._is_open = True
            self._write(StartEnvelope(made.envelope_id, made.emitter_id, self._clock.now(), made.head))

    async def _pass_former(self) -> None:
        """Find what an earlier delivery of the same envelope has left: sealed, it stands; open, it is cancelled."""
        while (stored := await self._journal.read(read_envelope, self._derivation.envelope_id)) is not None:
            if stored.state is EnvelopeState.RECEIVED:
                self._is_sealed = True
                return
            if stored.state is EnvelopeState.OPEN:
                await self._cancel()
            self._derivation = replace(self._derivation, generation=self._derivation.generation + 1)

    def _parts(self, event: EmittedEvent) -> Iterator[Write[None]]:
        yield from self._begun(event)
        envelope_id = self._derivation.envelope_id
        yield Append(envelope_id, self._derivation.event_id(event.number), *event.taken(), event.type.compress)

    def _begun(self, event: EmittedEvent) -> Iterator[Write[None]]:
        """Begin an event in the journal, where it is not there yet."""
        if not event.number:
            event.number = 1 + max(each.number for each in self._events.values())
            event_id, number = self._derivation.event_id(event.number), event.number
            graph = (event.type.id, event.type.graph_id)
            yield StartEvent(event_id, self._derivation.envelope_id, number, *graph, 0, event.tags)

    def _appending(self, event: EmittedEvent, page: OutputPage) -> AppendOutput:
        event_id = self._derivation.event_id(event.number)
        return AppendOutput(self._derivation.envelope_id, event_id, event.appended(page), page)

    def seal_at_once(self) -> "asyncio.Future[SealReceipt] | None":
        """Hand a whole envelope that is in memory to the journal, without a wait; None where it has no items.

        It takes no turn: whatever else is done with the envelope finds it received, or its id taken.
        """
        return self._write(self._whole()) if self._held_bytes else None

    async def seal(self) -> None:
        """Have the envelope received; a repeat changes nothing.

        Raises:
            JournalError: it could not be written.
        """
        if self._held_bytes:
            await self._room()
        async with self._turn:
            if self._is_sealed or not self._events:
                return
            if self._is_open:
                await self._seal_open()
            elif any(event.held for event in self._events.values()):
                await self._put()
            self._is_sealed = True

    async def _seal_open(self) -> None:
        writes: list[asyncio.Future[Any]] = [*await self._write_held()]
        envelope_id = self._derivation.envelope_id
        events = [event for event in self._events.values() if event.number]
        for event in events:
            writes.append(self._write(EndEvent(envelope_id, self._derivation.event_id(event.number), event.written)))
        items = sum(event.written for event in events)
        seen = [content for event in events if (content := event.content) is not None]
        # No emitter repeats an envelope of a node: nobody misses the hash of content that was not seen.
        hashed = content_hash(seen, self._derivation.head.headers) if len(seen) == len(events) else None
        about = (self._clock.now(), hashed, self._derivation.head.headers)
        await asyncio.gather(*writes, self._write(Seal(envelope_id, len(events), items, *about)))

    async def _put(self) -> None:
        while not self._is_sealed:
            try:
                await self._write(self._whole())
                return
            except EnvelopeIdTaken:
                await self._pass_former()
            except JournalUnavailable as error:
                log.warning("not emitted yet: %s", error, extra={"action": "not_emitted"})
                await asyncio.sleep(self._retry_seconds)

    def _whole(self) -> PutEnvelope:
        made = self._derivation
        events = [
            PutEvent(
                made.event_id(number),
                event.type.id,
                event.type.name,
                event.type.graph_id,
                event.items,
                event.data,
                event.type.first_name,
                event.tags,
                event.type.compress,
            )
            for number, event in enumerate((each for each in self._events.values() if each.held), start=1)
        ]
        return PutEnvelope(made.envelope_id, made.emitter_id, events, self._clock.now(), made.head)

    async def _room(self) -> None:
        """Wait until the journal takes more. Outputs that came stay owed to the node, and their giver waits, too.

        Raises:
            JournalError: its delivery was broken off meanwhile.
        """
        if not self._may_emit():
            log.warning("not emitted yet: the journal is full", extra={"action": "not_emitted", "code": "journal_full"})
        while not self._may_emit():
            await asyncio.sleep(self._retry_seconds)
            self._check_wanted()

    def _check_wanted(self) -> None:
        if self._is_stopped:
            raise JournalError(BROKEN_OFF, code="envelope_stopped")

    async def stop(self) -> None:
        """Forget what is not sealed."""
        self._is_stopped = True
        async with self._turn:
            if self._is_open and not self._is_sealed:
                self._is_open = False
                await self._cancel()

    async def _cancel(self) -> None:
        try:
            await self._write(Cancel(self._derivation.envelope_id, self._clock.now(), BROKEN_OFF))
        except JournalError as error:
            # It was sealed or cancelled just now; or it stays open, and the next delivery finds it so.
            log.info("not cancelled: %s", error, extra={"action": "not_cancelled"})

    def _write(self, write: Write[T]) -> "asyncio.Future[T]":
        writing = self._journal.write(write, order=Order(self._derivation.emitter_id))
        # Behind one that failed others may fail, too, and nobody asks for their errors.
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return writing
