"""Writes of emitters: their envelopes, from the start to the seal.

They are made for each call, so no class here is frozen: that takes eight times as long. Nobody changes a write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from xbus.broker.journal.writes.write import Write
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.headers import NO_TAGS, EventTags

Indices: TypeAlias = list[list[int]]
"""For each item the indices of the emitted items that it was made of."""


class StoredObject(NamedTuple):
    """The object that holds the items of a write, durable before the write is carried out.

    Args:
        store_id: the row of ``model.object_store``.
        hash: SHA-256 of the data, by which the object is found.
        put_at: when the storing began, by the clock that only grows.
    """

    store_id: int
    hash: bytes
    put_at: float


@dataclass(slots=True)
class StartEnvelope(Write[None]):
    """An envelope begins."""

    envelope_id: UUID
    emitter_id: int
    at: datetime
    head: EnvelopeHead = PLAIN_HEAD


@dataclass(slots=True)
class StartEvent(Write[None]):
    event_id: UUID
    envelope_id: UUID
    number: int
    event_type_id: int
    graph_id: int
    estimate: int
    tags: EventTags = NO_TAGS


@dataclass(slots=True)
class Append(Write[None]):
    """Items of an event, ``data`` as in ``model.segment``; appends of one group that touch become one segment.

    Args:
        compress: whether the event's type compresses its segments.
        stored: where the data lies already; it becomes a segment of its own then.
    """

    envelope_id: UUID
    event_id: UUID
    first_index: int
    items: int
    data: bytes
    compress: bool = False
    stored: StoredObject | None = None

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(slots=True)
class EndEvent(Write[None]):
    envelope_id: UUID
    event_id: UUID
    items: int


@dataclass(slots=True)
class Seal(Write["SealReceipt"]):
    """The envelope is received: answered with its ``SealReceipt``.

    Args:
        events: how many events the journal must hold of it.
        items: how many items the journal must hold of it.
        content_hash: as in ``model.envelope``, where it has an idempotency key.
        headers: as it began with.
        content: all of it, as a group of one; None where that is not at hand. The back then reads nothing.
        is_one_append: whether its items came by one append at the most, so that they are one segment. It needs a
            ``content``, and spares the commit a read.
    """

    envelope_id: UUID
    events: int
    items: int
    at: datetime
    content_hash: bytes | None = None
    headers: bytes | None = None
    content: "PutGroup | None" = None
    is_one_append: bool = False


class PutEvent(NamedTuple):
    """An event of an envelope that comes as a whole; its items are one segment, ``data`` as in ``model.segment``.

    Args:
        first_name: that of its type, if the type was renamed.
        compress: whether its type compresses its segments.
        stored: where the data lies already.
    """

    event_id: UUID
    event_type_id: int
    type_name: str
    graph_id: int
    items: int
    data: bytes
    first_name: str = ""
    tags: EventTags = NO_TAGS
    compress: bool = False
    stored: StoredObject | None = None

    @property
    def hashed_name(self) -> str:
        return self.first_name or self.type_name


@dataclass(slots=True)
class PutEnvelope(Write["SealReceipt"]):
    """A whole envelope, received in one write: answered with its ``SealReceipt``.

    It fails with ``EnvelopeIdTaken`` where the journal has an envelope of its id, and then changes nothing.
    """

    envelope_id: UUID
    emitter_id: int
    events: Sequence[PutEvent]
    at: datetime
    head: EnvelopeHead = PLAIN_HEAD

    @property
    def size(self) -> int:
        return sum([len(event.data) for event in self.events])

    @property
    def header_bytes(self) -> int:
        """The bytes of all its headers."""
        own = len(self.head.headers or b"")
        return own + sum([event.tags.size for event in self.events if event.tags is not NO_TAGS])


class GroupType(NamedTuple):
    """The event type of envelopes in a group.

    Args:
        hashed_name: the name that hashes of envelopes hold.
        graph_id: the version of its graph that its events take.
        compress: whether it compresses its segments.
    """

    id: int
    name: str
    hashed_name: str
    graph_id: int
    compress: bool


@dataclass(eq=False, slots=True)
class PutGroup(Write["SealedGroup"]):
    """Whole envelopes of one event each, as columns; all are received in one write.

    The journal leaves those out whose ids are taken, and receives the others.

    Args:
        emitter_ids: theirs; several emitters may share a group.
        envelope_ids: of 16 bytes, and so are ``event_ids``.
        items: how many each event has.
        data: as in ``model.segment``; empty where there are none.
        heads: of the envelopes.
        tags: of their events.
        size: the bytes of all items and headers.
    """

    emitter_ids: Sequence[int]
    at: datetime
    envelope_ids: Sequence[bytes]
    event_ids: Sequence[bytes]
    types: Sequence[GroupType]
    items: Sequence[int]
    data: Sequence[bytes]
    heads: Sequence[EnvelopeHead]
    tags: Sequence[EventTags]
    size: int

    def __len__(self) -> int:
        return len(self.envelope_ids)

    def size_at(self, place: int) -> int:
        """Count the bytes of the items and headers of one envelope."""
        return len(self.data[place]) + len(self.heads[place].headers or b"") + self.tags[place].size

    def at_places(self, places: Sequence[int]) -> "PutGroup":
        """Give the group of the envelopes at some places."""
        return PutGroup(
            [self.emitter_ids[place] for place in places],
            self.at,
            [self.envelope_ids[place] for place in places],
            [self.event_ids[place] for place in places],
            [self.types[place] for place in places],
            [self.items[place] for place in places],
            [self.data[place] for place in places],
            [self.heads[place] for place in places],
            [self.tags[place] for place in places],
            sum(map(self.size_at, places)),
        )


@dataclass(slots=True)
class Cancel(Write[None]):
    envelope_id: UUID
    at: datetime
    reason: str


@dataclass(slots=True)
class RepeatedEvent:
    """An event of an envelope that repeats another.

    Args:
        event_id: its new id.
        origin_id: the event whose segments have its items, which is never itself a repeat.
        number: as in the repeated envelope, and so are the type, the estimate, the number of items and the tags.
        graph_id: the graph that it takes now.
    """

    event_id: UUID
    origin_id: UUID
    number: int
    event_type_id: int
    graph_id: int
    estimate: int
    items: int
    tags: EventTags = NO_TAGS


@dataclass(slots=True)
class Repeat(Write["SealReceipt"]):
    """Repeat a received envelope as a new one that is received at once; the answer is its ``SealReceipt``.

    Args:
        envelope_id: of the new envelope.
        origin_id: of the repeated one.
        events: all of its events.
        parked_for: the roles that get the repeat. Their deliveries of the origin must be parked, and this settles them.
            None if everybody gets the repeat.
    """

    envelope_id: UUID
    origin_id: UUID
    events: Sequence[RepeatedEvent]
    parked_for: Sequence[int] | None
    at: datetime


class SealReceipt(NamedTuple):
    """The receipt that the emitter of a received envelope gets.

    Args:
        position: its place in the log, from 1.
        data_bytes: of its segments.
        hash: SHA-256, see ``model.envelope``.
    """

    envelope_id: UUID
    position: int
    events: int
    items: int
    data_bytes: int
    hash: bytes


class SealedGroup(NamedTuple):
    """The envelopes of a group that a commit has sealed, at positions that follow each other.

    Args:
        first: the position of the first of them.
        last: that of the last.
        group: those that were received.
        hashes: of their contents, see ``model.envelope``.
        taken: the others by their places in the group that was handed in, as their ids are taken. An exact repeat of a
            sealed envelope has the receipt of the first time, all others have None.
    """

    first: int
    last: int
    group: PutGroup
    hashes: Sequence[bytes]
    taken: Mapping[int, SealReceipt | None] = MappingProxyType({})

    @classmethod
    def joined(cls, run: "Sequence[SealedGroup]") -> "SealedGroup":
        """Give several as one, which follow each other and have one moment."""
        if len(run) == 1:
            return run[0]
        groups = [each.group for each in run]
        group = PutGroup(
            [*chain.from_iterable([each.emitter_ids for each in groups])],
            groups[0].at,
            [*chain.from_iterable([each.envelope_ids for each in groups])],
            [*chain.from_iterable([each.event_ids for each in groups])],
            [*chain.from_iterable([each.types for each in groups])],
            [*chain.from_iterable([each.items for each in groups])],
            [*chain.from_iterable([each.data for each in groups])],
            [*chain.from_iterable([each.heads for each in groups])],
            [*chain.from_iterable([each.tags for each in groups])],
            sum([each.size for each in groups]),
        )
        return cls(run[0].first, run[-1].last, group, [*chain.from_iterable([each.hashes for each in run])])

    @property
    def last_id(self) -> bytes:
        """The id of the last of them."""
        return self.group.envelope_ids[-1]

    def receipt(self, place: int) -> SealReceipt:
        """Give the receipt of one of them."""
        group = self.group
        envelope_id, items, data_bytes = group.envelope_ids[place], group.items[place], len(group.data[place])
        return SealReceipt(UUID(bytes=envelope_id), self.first + place, 1, items, data_bytes, self.hashes[place])

    @property
    def type_ids(self) -> set[int]:
        """The ids of the types of their events."""
        return {each.id for each in set(self.group.types)}

    def envelope(self, position: int) -> PutEnvelope:
        """Give one of them as it would have come alone."""
        group, place = self.group, position - self.first
        of_type, data, head = group.types[place], group.data[place], group.heads[place]
        first_name = "" if of_type.hashed_name == of_type.name else of_type.hashed_name
        event = PutEvent(
            UUID(bytes=group.event_ids[place]),
            *(of_type.id, of_type.name, of_type.graph_id, group.items[place], data, first_name, group.tags[place]),
            compress=of_type.compress,
        )
        return PutEnvelope(UUID(bytes=group.envelope_ids[place]), group.emitter_ids[place], (event,), group.at, head)


class SealedEnvelope(NamedTuple):
    """An envelope that a commit has just sealed.

    Args:
        content: all of it, where it came in one write; None where it came in parts, and has to be read.
        is_repeat: whether it repeats another one, whose items may have been corrected.
    """

    receipt: SealReceipt
    content: PutEnvelope | None
    is_repeat: bool = False

    @property
    def first(self) -> int:
        """Its position, as that of a group of one."""
        return self.receipt.position

    @property
    def last(self) -> int:
        """The same."""
        return self.receipt.position

    @property
    def last_id(self) -> bytes:
        """Its id."""
        return self.receipt.envelope_id.bytes

    @property
    def type_ids(self) -> set[int] | None:
        """The ids of the types of its events; None where its content is not known."""
        return None if self.content is None else {event.event_type_id for event in self.content.events}


Sealed: TypeAlias = SealedEnvelope | SealedGroup
"""The envelopes that a commit has sealed, in position order."""
