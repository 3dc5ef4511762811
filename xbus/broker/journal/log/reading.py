"""The log, as the back delivers it and repeats are compared with it. Each function is one short read; none leaves a
transaction open."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import DAMAGED, PLAIN_SIZE
from xbus.broker.journal.database.paging import first_page
from xbus.broker.journal.database.rows import grouped
from xbus.broker.journal.log.deliveries import SELECT_DELIVERIES, as_delivery
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.objects.reading import STORED_DATA, SegmentData, segment_data
from xbus.broker.journal.writes import DeliveryRow, Indices
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import JournalError
from xbus.headers import NO_TAGS, EventTags
from xbus.states import DeliveryState


class LogEvent(NamedTuple):
    """An event as the back delivers it, in a received envelope or ahead of it for an immediate reply.

    Args:
        id: of 16 bytes. An object for it is made where one is asked for, as most envelopes need none.
        origin: the id of the event that it repeats.
    """

    id: bytes
    type_name: str
    graph_id: int
    items: int
    origin: bytes | None = None
    tags: EventTags = NO_TAGS

    @property
    def event_id(self) -> UUID:
        """Its id."""
        return UUID(bytes=self.id)

    @property
    def segments_id(self) -> UUID:
        """The event under whose id its items are stored: itself, or the one that it repeats."""
        return UUID(bytes=self.origin or self.id)


class LogEnvelope(NamedTuple):
    """A received envelope, as the back needs it.

    Args:
        id: of 16 bytes.
        graph_ids: the graphs of its events, in their order.
        only_roles: the roles that it is for; None for all that its graphs lead to.
        emitter_id: whose it is.
        sealed_at: when it was sealed.
        size: the bytes of its items.
    """

    id: bytes
    position: int
    events: tuple[LogEvent, ...]
    graph_ids: tuple[int, ...]
    only_roles: frozenset[int] | None = None
    head: EnvelopeHead = PLAIN_HEAD
    emitter_id: int = 0
    sealed_at: datetime | None = None
    size: int = 0

    @property
    def envelope_id(self) -> UUID:
        """Its id."""
        return UUID(bytes=self.id)

    def is_for(self, role_id: int) -> bool:
        """Check whether a role may be owed it at all."""
        return self.only_roles is None or role_id in self.only_roles


def read_head(connection: sa.Connection) -> int:
    """Read the position of the envelope sealed last; 0 before the first."""
    head: int = connection.execute(sa.select(model.head.c.position)).scalar_one()
    return head


@dataclass(frozen=True, slots=True)
class Ends:
    """The end of the log, and of the corrections for all roles.

    Args:
        position: of the envelope sealed last; 0 before the first.
        correction: the id of the newest correction for all roles; 0 if none exists.
        envelope_id: of the envelope sealed last; None if it was removed.
        seen_id: of the envelope at the position that was the end before; None if it was removed.
    """

    position: int
    correction: int
    envelope_id: UUID | None
    seen_id: UUID | None


def read_ends(connection: sa.Connection, seen: int = 0) -> Ends:
    """Read what grows, in one statement: it is read whenever something was sealed.

    Args:
        seen: the position of the end, as it was read before.
    """
    return Ends(*connection.execute(_ENDS, {"seen": seen}).one())


_NEWEST_CORRECTION = (
    sa.select(model.correction.c.id)
    .where(model.correction.c.role_id.is_(None))
    .order_by(model.correction.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_SEEN = model.envelope.alias("seen")
_ENDS = (
    sa.select(model.head.c.position, sa.func.coalesce(_NEWEST_CORRECTION, 0), model.envelope.c.id, _SEEN.c.id)
    .select_from(model.head)
    .outerjoin(model.envelope, model.envelope.c.position == model.head.c.position)
    .outerjoin(_SEEN, _SEEN.c.position == sa.bindparam("seen"))
)


def read_log(connection: sa.Connection, after: int, limit: int) -> list[LogEnvelope]:
    """Read the next received envelopes in position order; removed ones are left out, and cost nothing.

    Args:
        after: a position; the results are above it.

    Returns:
        At least one envelope, if one is above ``after``.
    """
    position = model.envelope.c.position
    found = _log_envelopes(connection, _BETWEEN, {"first": after + 1, "last": after + limit})
    if found:
        return found
    first = connection.execute(sa.select(sa.func.min(position)).where(position > after)).scalar_one()
    if first is None:
        return []
    return _log_envelopes(connection, _BETWEEN, {"first": first, "last": first + limit - 1})


def read_at(connection: sa.Connection, positions: Sequence[int]) -> list[LogEnvelope]:
    """Read the received envelopes at some positions, in position order."""
    return _log_envelopes(connection, _AT, {"positions": positions})


def read_sealed(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> list[LogEnvelope]:
    """Read those of some envelopes that are received, in position order."""
    return _log_envelopes(connection, _SEALED, {"ids": envelope_ids})


_ENVELOPES = (
    sa.select(
        *(model.envelope.c[name] for name in ("position", "id", "emitter_id", "closed_at", "bytes")),
        *(model.envelope.c.origin_id.is_not(None).label("is_repeat"), *model.ENVELOPE_HEAD),
        *(model.event.c.id.label("event_id"), model.event_type.c.name),
        *(model.event.c.graph_id, model.event.c["items"], model.event.c.origin_id),
        *model.EVENT_TAGS,
    )
    # Of one whose removal has begun its items are not all there any more.
    .outerjoin(
        model.event,
        sa.and_(model.event.c.envelope_id == model.envelope.c.id, model.envelope.c.pruned_at.is_(None)),
    )
    .outerjoin(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
    .order_by(model.envelope.c.position, model.event.c.number)
)
_PLACE = model.envelope.c.position
_BETWEEN = _ENVELOPES.where(_PLACE.between(sa.bindparam("first"), sa.bindparam("last")))
_AT = _ENVELOPES.where(_PLACE.in_(sa.bindparam("positions", expanding=True)))
_SEALED = _ENVELOPES.where(model.envelope.c.id.in_(sa.bindparam("ids", expanding=True)), _PLACE.is_not(None))
"""Made once, as each page of the log is read by one of them."""

_POSITION = itemgetter(0)


def _log_envelopes(
    connection: sa.Connection, statement: sa.Executable, values: Mapping[str, object]
) -> list[LogEnvelope]:
    rows = connection.execute(statement, values).all()
    only_roles = read_only_roles(connection, {row.id for row in rows if row.is_repeat})
    return [_log_envelope(list(events), only_roles) for _, events in groupby(rows, key=_POSITION)]


def _log_envelope(rows: Sequence[Sequence[Any]], only_roles: Mapping[UUID, frozenset[int]]) -> LogEnvelope:
    """Make an envelope of its rows, of which each has another event."""
    position, envelope_id, emitter_id, sealed_at, size, _, *rest = rows[0]
    head = EnvelopeHead(*rest[: len(EnvelopeHead._fields)])
    # Behind the columns of the envelope come those of the event.
    first_of_event = len(rows[0]) - len(rest) + len(EnvelopeHead._fields)
    events = tuple([_log_event(*row[first_of_event:]) for row in rows if row[first_of_event] is not None])
    graph_ids = tuple([event.graph_id for event in events])
    kept = PLAIN_HEAD if head == PLAIN_HEAD else head
    about = (only_roles.get(envelope_id), kept, emitter_id, sealed_at, size)
    return LogEnvelope(envelope_id.bytes, position, events, graph_ids, *about)


def _log_event(
    event_id: UUID, type_name: str, graph_id: int, items: int, origin_id: UUID | None, *tags: Any
) -> LogEvent:
    kept = NO_TAGS if tags == NO_TAGS else EventTags(*tags)
    origin = None if origin_id is None else origin_id.bytes
    return LogEvent(event_id.bytes, type_name, graph_id, items, origin, kept)


def is_kept() -> sa.ColumnElement[bool]:
    """The condition that the journal or an archive has the items of an envelope."""
    return sa.or_(model.envelope.c.pruned_at.is_(None), _IS_ARCHIVED)


def find_archived(connection: sa.Connection, positions: Sequence[int], services: Collection[str]) -> dict[int, UUID]:
    """Find the archived ones among envelopes that lead to one of some consumer services.

    Args:
        positions: theirs.
        services: the keys of the services.

    Returns:
        Their ids by position, in its order.
    """
    envelope, event, node = model.envelope.c, model.event.c, model.node.c
    is_gone = envelope.pruned_at.is_not(None)
    leads = (
        sa.exists()
        .where(event.envelope_id == envelope.id, node.graph_id == event.graph_id)
        .where(node.service_id == model.service.c.id, model.service.c.key.in_(list(services)))
    )
    wanted = sa.select(envelope.position, envelope.id).where(
        envelope.position.in_(positions), is_gone, _IS_ARCHIVED, leads
    )
    return {row.position: row.id for row in connection.execute(wanted.order_by(envelope.position))}


_IS_ARCHIVED = sa.exists().where(model.archived_envelope.c.envelope_id == model.envelope.c.id)


def read_only_roles(connection: sa.Connection, repeats: Collection[UUID]) -> dict[UUID, frozenset[int]]:
    """Read the roles that envelopes are for, if they are for some roles only.

    Args:
        repeats: envelopes that repeat others; no others are for some roles only, so usually the list is empty.
    """
    if not repeats:
        return {}
    named = model.envelope_role.c
    statement = sa.select(named.envelope_id, named.role_id).where(named.envelope_id.in_(repeats))
    roles = grouped(connection.execute(statement))
    return {envelope_id: frozenset(found) for envelope_id, found in roles.items()}


def read_segments(connection: sa.Connection, event_id: UUID, from_index: int, max_bytes: int) -> list[Segment]:
    """Read the next segments of an event, in index order.

    Args:
        from_index: the first wanted index; its segment comes first, also if it begins before.
        max_bytes: segments are added until their data would exceed this; the first one always comes.

    Returns:
        Segments that follow each other; none at the event's end.
    """
    wanted = {"of_event": event_id, "from_index": from_index}
    page = first_page(connection.execute(_SEGMENT_SIZES, wanted).all(), max_bytes)
    if not page:
        return []
    rows = connection.execute(_SEGMENTS, {**wanted, "last": page[-1].first_index}).all()
    door = segment_data(connection)
    return [_segment(door, event_id, *row) for row in rows]


def _segment(
    door: SegmentData,
    event_id: UUID,
    first_index: int,
    items: int,
    indices: Indices | None,
    data: bytes,
    plain_bytes: int | None,
    store_id: int | None,
    digest: bytes,
) -> Segment:
    plain = door.plain_of(event_id, first_index, data, plain_bytes, store_id, digest)
    return Segment(first_index, items, plain, indices)


_OF_EVENT = model.log_segment.c.event_id == sa.bindparam("of_event")
_FROM_INDEX = sa.bindparam("from_index", type_=sa.BigInteger)
_WANTED = sa.and_(
    _OF_EVENT,
    model.log_segment.c.first_index
    # Of ``max`` SQLite would read all segments before it, as the view is two selects.
    >= sa.select(model.log_segment.c.first_index)
    .where(_OF_EVENT, model.log_segment.c.first_index <= _FROM_INDEX)
    .order_by(model.log_segment.c.first_index.desc())
    .limit(1)
    .scalar_subquery(),
    model.log_segment.c.first_index + model.log_segment.c["items"] > _FROM_INDEX,
)
_PARTS = [model.log_segment.c[name] for name in ("first_index", "items", "indices", *STORED_DATA)]
_SEGMENT_SIZES = (
    sa.select(model.log_segment.c.first_index, PLAIN_SIZE)
    .where(_WANTED)
    .order_by(model.log_segment.c.first_index)
    .limit(256)
)
_SEGMENTS = (
    sa.select(*_PARTS)
    .where(_WANTED, model.log_segment.c.first_index <= sa.bindparam("last"))
    .order_by(model.log_segment.c.first_index)
)
"""Made once, as the items of each event are read by them."""


def read_small_events(connection: sa.Connection, event_ids: Sequence[UUID]) -> dict[UUID, list[Segment]]:
    """Read all segments of small events, in one read for many.

    Args:
        event_ids: those under which the items are stored. Together they hold as many bytes as may be read at once.

    Returns:
        The segments by event, in index order. An event without any is left out, and so is a damaged one: whoever reads
        it alone learns of that, and the others are not kept waiting.
    """
    rows = connection.execute(_SMALL_EVENTS, {"events": event_ids}).all()
    door = segment_data(connection)
    segments: dict[UUID, list[Segment]] = defaultdict(list)
    damaged: set[UUID] = set()
    for event_id, *row in rows:
        try:
            segments[event_id].append(_segment(door, event_id, *row))
        except JournalError as error:
            if error.code != DAMAGED:
                raise
            damaged.add(event_id)
    return {event_id: found for event_id, found in segments.items() if event_id not in damaged}


_SMALL_EVENTS = (
    sa.select(model.log_segment.c.event_id, *_PARTS)
    .where(model.log_segment.c.event_id.in_(sa.bindparam("events", expanding=True)))
    .order_by(model.log_segment.c.event_id, model.log_segment.c.first_index)
)


def digest_segments(
    connection: sa.Connection, event_id: UUID, from_index: int, max_bytes: int, digest: "hashlib._Hash"
) -> int | None:
    """Hash the data of the next segments of an event, as ``read_segments`` gives them.

    Returns:
        The index behind them; None at the event's end.
    """
    segments = read_segments(connection, event_id, from_index, max_bytes)
    for segment in segments:
        digest.update(segment.data)
    return segments[-1].first_index + segments[-1].items if segments else None


# -- ordered -----------------------------------------------------------------------------------------------------------
# The deliveries of roles that want order, key by key. Each function is one short read.


@dataclass(frozen=True, slots=True)
class HeldKey:
    """An ordering key of which a role has delivery rows: from the lowest position to the highest."""

    role_id: int
    ordering_key: str
    lowest: int
    highest: int


def read_held_keys(connection: sa.Connection, role_ids: Collection[int]) -> list[HeldKey]:
    """Read all keys of which ordered roles have rows."""
    return [HeldKey(*row) for row in connection.execute(_held_keys(role_ids))]


def read_free_keys(connection: sa.Connection, role_ids: Collection[int]) -> list[HeldKey]:
    """Read those whose lowest row is marked as blocked, though nothing blocks it any more."""
    keys = _held_keys(role_ids).subquery()
    delivery = model.delivery.c
    is_lowest = sa.and_(delivery.role_id == keys.c.role_id, delivery.position == keys.c.lowest)
    statement = sa.select(keys).join(model.delivery, is_lowest).where(delivery.state == DeliveryState.HELD)
    return [HeldKey(*row) for row in connection.execute(statement)]


def _held_keys(role_ids: Collection[int]) -> "sa.Select[int, str, int, int]":
    delivery = model.delivery.c
    return (
        sa.select(
            delivery.role_id,
            delivery.ordering_key,
            sa.func.min(delivery.position).label("lowest"),
            sa.func.max(delivery.position).label("highest"),
        )
        .where(delivery.role_id.in_(role_ids), delivery.ordering_key.is_not(None))
        .group_by(delivery.role_id, delivery.ordering_key)
    )


def read_key_rows(connection: sa.Connection, role_id: int, ordering_key: str, limit: int) -> list[DeliveryRow]:
    """Read the rows of one key, lowest position first."""
    delivery = model.delivery.c
    statement = (
        SELECT_DELIVERIES.where(delivery.role_id == role_id, delivery.ordering_key == ordering_key)
        .order_by(delivery.position)
        .limit(limit)
    )
    return [as_delivery(row) for row in connection.execute(statement)]


def read_states(connection: sa.Connection, role_id: int, positions: Sequence[int]) -> dict[int, DeliveryState]:
    """Read the states of a role's rows at some positions, by position; positions without a row are left out."""
    delivery = model.delivery.c
    statement = sa.select(delivery.position, delivery.state).where(
        delivery.role_id == role_id, delivery.position.in_(positions)
    )
    return {position: DeliveryState(state) for position, state in connection.execute(statement)}
