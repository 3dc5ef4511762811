"""What front and back read of the journal. Each function is one short read; none leaves a transaction open."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.cursor import Cursor
from xbus.broker.journal.segments import Segment
from xbus.broker.journal.writes import Delivery, Receipt
from xbus.states import DeliveryState, EnvelopeState


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as the journal knows it; ``items`` and ``data_bytes`` are those of its segments.

    Args:
        damaged: whether segments are missing between those that are there: a write failed and one behind it did not.
    """

    event_id: UUID
    number: int
    type_name: str
    items: int
    data_bytes: int
    damaged: bool
    ended: bool
    origin_id: UUID | None = None

    @property
    def segments_id(self) -> UUID:
        """The event under whose id its items are stored: itself, or the one that it repeats."""
        return self.origin_id or self.event_id


@dataclass(frozen=True, slots=True)
class StoredEnvelope:
    """An envelope as the journal knows it; ``receipt`` where it is received."""

    envelope_id: UUID
    emitter_id: int
    state: EnvelopeState
    events: tuple[StoredEvent, ...]
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An event of a received envelope, as the back needs it."""

    event_id: UUID
    type_name: str
    graph_id: int
    items: int
    origin_id: UUID | None = None

    @property
    def segments_id(self) -> UUID:
        """The event under whose id its items are stored: itself, or the one that it repeats."""
        return self.origin_id or self.event_id


@dataclass(frozen=True, slots=True)
class LogEnvelope:
    """A received envelope, as the back needs it.

    Args:
        only_roles: the roles that it is for; None for all that its graphs lead to.
    """

    envelope_id: UUID
    position: int
    events: tuple[LogEvent, ...]
    only_roles: frozenset[int] | None = None

    def is_for(self, role_id: int) -> bool:
        """Whether a role may be owed it at all."""
        return self.only_roles is None or role_id in self.only_roles


@dataclass(frozen=True, slots=True)
class StoredSession:
    token_hash: bytes
    owner_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class StoredRegistration:
    role_id: int
    token_hash: bytes
    uri: str


@dataclass(frozen=True, slots=True)
class StoredIntroduction:
    """What a registered consumer said of itself, as in ``model.registration``."""

    metadata: Mapping[str, Any]
    features: Mapping[str, Any]


# -- for the front ---------------------------------------------------------------------------------------------------


def read_consumers(connection: sa.Connection) -> list[StoredIntroduction]:
    """The consumers that are registered, by the login of their role."""
    statement = (
        sa.select(model.registration.c["metadata"], model.registration.c.features)
        .join(model.role, model.role.c.id == model.registration.c.role_id)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .where(
            model.service.c.kind == "consumer",
            model.role.c.removed_at.is_(None),
            model.registration.c["metadata"].is_not(None),
        )
        .order_by(model.role.c.login)
    )
    return [StoredIntroduction(*row) for row in connection.execute(statement)]


def read_envelope(connection: sa.Connection, envelope_id: UUID) -> StoredEnvelope | None:
    """One envelope, whatever became of it; None where there is none of that id."""
    row = connection.execute(sa.select(model.envelope).where(model.envelope.c.id == envelope_id)).one_or_none()
    return None if row is None else _stored_envelope(connection, row)


def _stored_envelope(connection: sa.Connection, row: sa.Row[tuple[object, ...]]) -> StoredEnvelope:
    envelope = row._mapping
    statement = (
        sa.select(
            model.event.c.id,
            model.event.c.number,
            model.event_type.c.name,
            sa.func.coalesce(sa.func.sum(model.segment.c["items"]), 0),
            sa.func.coalesce(sa.func.sum(sa.func.length(model.segment.c.data)), 0),
            sa.func.coalesce(sa.func.max(model.segment.c.first_index + model.segment.c["items"]), 0),
            model.event.c["items"].is_not(None),
            model.event.c.origin_id,
        )
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .outerjoin(
            model.segment, model.segment.c.event_id == sa.func.coalesce(model.event.c.origin_id, model.event.c.id)
        )
        .where(model.event.c.envelope_id == envelope["id"])
        .group_by(
            model.event.c.id,
            model.event.c.number,
            model.event_type.c.name,
            model.event.c["items"],
            model.event.c.origin_id,
        )
        .order_by(model.event.c.number)
    )
    events = tuple(
        StoredEvent(event_id, number, type_name, int(items), int(size), int(items) != end, bool(ended), origin_id)
        for event_id, number, type_name, items, size, end, ended, origin_id in connection.execute(statement)
    )
    state = EnvelopeState(envelope["state"])
    receipt = None
    if state is EnvelopeState.RECEIVED:
        receipt = Receipt(
            envelope["id"],
            envelope["position"],
            envelope["events"],
            envelope["items"],
            envelope["bytes"],
            envelope["hash"],
        )
    return StoredEnvelope(envelope["id"], envelope["emitter_id"], state, events, receipt)


# -- for both --------------------------------------------------------------------------------------------------------


def read_sessions(connection: sa.Connection, *, of_roles: bool) -> list[StoredSession]:
    """All sessions of emitters, or of roles, expired ones included."""
    owner = model.session.c.role_id if of_roles else model.session.c.emitter_id
    statement = sa.select(model.session.c.token_hash, owner, model.session.c.expires_at).where(owner.is_not(None))
    return [StoredSession(*row) for row in connection.execute(statement)]


# -- for the back ----------------------------------------------------------------------------------------------------


def read_head(connection: sa.Connection) -> int:
    """The position of the envelope sealed last; 0 before the first."""
    head: int = connection.execute(sa.select(model.head.c.position)).scalar_one()
    return head


def read_log(connection: sa.Connection, after: int, limit: int) -> list[LogEnvelope]:
    """The next received envelopes in position order.

    Args:
        after: a position; what is returned lies above it.
        limit: how many envelopes at the most.
    """
    return _log_envelopes(
        connection, sa.and_(model.envelope.c.position > after, model.envelope.c.position <= after + limit)
    )


def read_at(connection: sa.Connection, positions: Sequence[int]) -> list[LogEnvelope]:
    """The received envelopes at some positions, in position order."""
    return _log_envelopes(connection, model.envelope.c.position.in_(positions))


def read_sealed(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> list[LogEnvelope]:
    """Those of some envelopes that are received, in position order."""
    return _log_envelopes(
        connection, sa.and_(model.envelope.c.id.in_(envelope_ids), model.envelope.c.position.is_not(None))
    )


def _log_envelopes(connection: sa.Connection, which: sa.ColumnElement[bool]) -> list[LogEnvelope]:
    statement = (
        sa.select(
            model.envelope.c.id,
            model.envelope.c.position,
            model.event.c.id.label("event_id"),
            model.event_type.c.name,
            model.event.c.graph_id,
            model.event.c["items"],
            model.event.c.origin_id,
        )
        .outerjoin(model.event, model.event.c.envelope_id == model.envelope.c.id)
        .outerjoin(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .where(which)
        .order_by(model.envelope.c.position, model.event.c.number)
    )
    events: dict[tuple[UUID, int], list[LogEvent]] = {}
    repeats: set[UUID] = set()
    for envelope_id, position, event_id, type_name, graph_id, items, origin_id in connection.execute(statement):
        of_envelope = events.setdefault((envelope_id, position), [])
        if event_id is not None:
            of_envelope.append(LogEvent(event_id, type_name, graph_id, items, origin_id))
        if origin_id is not None:
            repeats.add(envelope_id)
    only_roles = read_only_roles(connection, repeats)
    return [
        LogEnvelope(envelope_id, position, tuple(found), only_roles.get(envelope_id))
        for (envelope_id, position), found in events.items()
    ]


def read_only_roles(connection: sa.Connection, repeats: Collection[UUID]) -> dict[UUID, frozenset[int]]:
    """The roles that envelopes are for, where they are for some roles only.

    Args:
        repeats: envelopes that repeat others; no other is for some roles only, so usually there are none to ask for.
    """
    if not repeats:
        return {}
    named = model.envelope_role.c
    statement = sa.select(named.envelope_id, named.role_id).where(named.envelope_id.in_(repeats))
    roles: dict[UUID, set[int]] = {}
    for envelope_id, role_id in connection.execute(statement):
        roles.setdefault(envelope_id, set()).add(role_id)
    return {envelope_id: frozenset(found) for envelope_id, found in roles.items()}


def read_segments(connection: sa.Connection, event_id: UUID, from_index: int, max_bytes: int) -> list[Segment]:
    """The next segments of an event, in index order.

    Args:
        from_index: the first index that is wanted; the segment that holds it comes first, also where it begins before.
        max_bytes: segments are added until their data would exceed this; the first one always comes.

    Returns:
        Segments that follow each other; none at the event's end.
    """
    segment = model.segment.c
    holds_it = (
        sa.select(sa.func.max(segment.first_index))
        .where(segment.event_id == event_id, segment.first_index <= from_index)
        .scalar_subquery()
    )
    wanted = sa.and_(
        segment.event_id == event_id,
        segment.first_index >= holds_it,
        segment.first_index + segment["items"] > from_index,
    )
    sizes = connection.execute(
        sa.select(segment.first_index, sa.func.length(segment.data))
        .where(wanted)
        .order_by(segment.first_index)
        .limit(256)
    ).all()
    if not sizes:
        return []
    last, total = sizes[0].first_index, 0
    for first_index, size in sizes:
        total += size
        if total > max_bytes:
            break
        last = first_index
    rows = connection.execute(
        sa.select(segment.first_index, segment["items"], segment.data, segment.indices)
        .where(wanted, segment.first_index <= last)
        .order_by(segment.first_index)
    )
    return [Segment(first_index, items, bytes(data), indices) for first_index, items, data, indices in rows]


def read_cursors(connection: sa.Connection) -> dict[int, Cursor]:
    """Where each consumer role stands, by role id."""
    return {
        row.role_id: Cursor(
            row.role_id,
            row.from_position,
            row.until_position,
            row.position,
            Cursor.from_bitmap(bytes(row.done)),
            row.handed_to,
        )
        for row in connection.execute(sa.select(model.cursor))
    }


def read_role_services(connection: sa.Connection) -> dict[int, str]:
    """The service of each role by role id, removed roles included."""
    statement = sa.select(model.role.c.id, model.service.c.name).join(model.service)
    return {row.id: row.name for row in connection.execute(statement)}


def read_due_deliveries(connection: sa.Connection, role_id: int, services: Sequence[str], limit: int) -> list[Delivery]:
    """Delivery rows of a role that could be handed over now, lowest position first.

    Args:
        services: the worker services that are there.
        limit: how many rows at the most.
    """
    delivery = model.delivery.c
    served = sa.and_(delivery.state == DeliveryState.WAITING, model.service.c.name.in_(services))
    statement = (
        sa.select(
            delivery.role_id,
            delivery.envelope_id,
            delivery.position,
            delivery.state,
            delivery.attempts,
            delivery.code,
            delivery.cause,
            model.service.c.name,
        )
        .outerjoin(model.service, model.service.c.id == delivery.service_id)
        .where(delivery.role_id == role_id, sa.or_(delivery.state == DeliveryState.RETRY, served))
        .order_by(delivery.position)
        .limit(limit)
    )
    return [
        Delivery(role_id, envelope_id, position, DeliveryState(state), attempts, code, cause, service)
        for role_id, envelope_id, position, state, attempts, code, cause, service in connection.execute(statement)
    ]


def read_registrations(connection: sa.Connection) -> list[StoredRegistration]:
    """The recipients that were registered when the broker last ran."""
    statement = sa.select(model.registration.c.role_id, model.registration.c.token_hash, model.registration.c.uri)
    return [StoredRegistration(*row) for row in connection.execute(statement)]
