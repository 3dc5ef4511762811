"""The items of any envelope, page by page, as its emitter sent them."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from uuid import UUID

from xbus.admin.repair.payload import Payload
from xbus.admin.repair.places import find_event
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.reading import read_segments
from xbus.broker.journal.log.repeats import Past
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.broker.journal.operations.parked import find_past
from xbus.errors import Refused
from xbus.rpc.codec import unpack_items

PAGE_BYTES = 1 << 20
"""Bytes of items that are read at once. More need more memory, and fewer take more statements."""


SHOWN_BYTES = 64 << 20
"""Bytes of items that one page shows at the most. An item may have 16 MiB."""


@dataclass(frozen=True, slots=True)
class EnvelopeItem:
    """An item, and its place.

    Args:
        position: of its envelope; None unless that is received.
        secret: paths of the fields that are hidden.
    """

    envelope_id: UUID
    position: int | None
    event_id: UUID
    event_number: int
    type_name: str
    index: int
    data: bytes
    secret: Set[str] = frozenset()

    @property
    def payload(self) -> Payload:
        """Its value, which shows no secret fields."""
        return Payload.of(self.data, self.secret)

    def plain(self) -> Mapping[str, object]:
        """Make an object of it for a program."""
        payload = self.payload
        return {
            "envelope_id": self.envelope_id,
            "position": self.position,
            "event_id": self.event_id,
            "event_number": self.event_number,
            "type": self.type_name,
            "index": self.index,
            "format": payload.kind,
            "bytes": len(self.data),
            "value": payload.plain,
        }


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Items that follow each other.

    Args:
        next_event: the number of the event with the next item; None where all were read.
        next_index: its index there.
    """

    items: tuple[EnvelopeItem, ...]
    next_event: int | None = None
    next_index: int = 0


def read_items_page(
    connection: Connection,
    envelope_id: UUID,
    position: int | None,
    event: str | None,
    first: int,
    limit: int,
    max_bytes: int = SHOWN_BYTES,
    *,
    show_secrets: bool = False,
) -> ItemPage:
    """Read items of an envelope, as its emitter sent them: of an open one those that are durable so far.

    Args:
        position: the envelope's.
        event: where to begin, an event's number or id; None for the first event.
        first: where to begin in that event, from 0.
        limit: how many items at the most.
        max_bytes: how many bytes of them, unless the first item alone has more.
        show_secrets: whether the items show the fields that their event types call secret.

    Raises:
        Refused: the envelope (``envelope_unknown``) or the event (``event_unknown``) does not exist, or only an archive
            has the items (``envelope_archived``).
    """
    past = find_past(connection, envelope_id)
    if past.archived:
        raise Refused(
            f"the items of envelope {envelope_id} are in an archive only",
            f"restore them first: xbus restore {envelope_id}",
            code="envelope_archived",
        )
    secrets = {} if show_secrets else read_secret_fields(connection)
    found: list[EnvelopeItem] = []
    size = 0
    for item in _walk(connection, past, position, event, first):
        if len(found) == limit or (found and size + len(item.data) > max_bytes):
            return ItemPage(tuple(found), item.event_number, item.index)
        found.append(replace(item, secret=secrets.get(item.type_name, frozenset())))
        size += len(item.data)
    return ItemPage(tuple(found))


def _walk(
    connection: Connection, past: Past, position: int | None, event: str | None, first: int
) -> Iterator[EnvelopeItem]:
    if not past.events:
        return
    begin = past.events[0] if event is None else find_event(past, event)
    for each in past.events:
        if each.number >= begin.number:
            from_index = first if each is begin else 0
            for index, data in walk_event(connection, each.segments_id, from_index):
                place = (past.envelope_id, position, each.event_id, each.number, each.type_name, index)
                yield EnvelopeItem(*place, data)


def walk_event(connection: Connection, segments_id: UUID, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Iterate over the items of an event that the journal has, from an index on, with their indices."""
    while segments := read_segments(connection, segments_id, first, PAGE_BYTES):
        yield from items_of(segments, first)
        first = segments[-1].first_index + segments[-1].items


def items_of(segments: Sequence[Segment], first: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the items of segments that follow each other, from an index on, with their indices."""
    for segment in segments:
        for index, data in enumerate(unpack_items(segment.data, segment.items), segment.first_index):
            if index >= first:
                yield index, data
