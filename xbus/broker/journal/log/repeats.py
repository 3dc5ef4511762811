"""Envelopes that may be repeated, and those that were. Each function is one short read."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import grouped
from xbus.headers import NO_TAGS, EventTags
from xbus.states import DeliveryState, EnvelopeState


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An event of an envelope that may be repeated.

    Args:
        graph_id: the graph that it took.
        segments_id: the event under whose id its items are stored: itself, or the one that it repeats.
        items: the number of its items; None while it is open.
        tags: its headers and its partition key.
    """

    event_id: UUID
    segments_id: UUID
    number: int
    type_name: str
    event_type_id: int
    graph_id: int
    estimate: int
    items: int | None
    tags: EventTags = NO_TAGS


@dataclass(frozen=True, slots=True)
class Past:
    """An envelope that may be repeated.

    Args:
        origin_id: the envelope that it repeats itself, if any.
        archived: whether only an archive has its items, which must be restored first.
    """

    envelope_id: UUID
    emitter_id: int
    state: EnvelopeState
    origin_id: UUID | None
    archived: bool
    events: tuple[PastEvent, ...]


@dataclass(frozen=True, slots=True)
class ParkedRole:
    """A role that an envelope is parked for; ``removed`` says that the role is not in use any more."""

    role_id: int
    login: str
    service_id: int
    removed: bool


@dataclass(frozen=True, slots=True)
class RepeatStatus:
    """The parked deliveries and the retries of an envelope.

    Args:
        parked: the roles for which it is parked, by id.
        retries: for each role with a retry the envelope that repeats it, the latest last.
    """

    past: Past
    parked: tuple[ParkedRole, ...]
    retries: dict[int, UUID]


def read_past(connection: sa.Connection, envelope_id: UUID) -> Past | None:
    """Read an envelope that may be repeated; None if it does not exist or lost its items for good."""
    envelope, archived = model.envelope.c, model.archived_envelope.c
    is_gone = envelope.pruned_at.is_not(None)
    wanted = (
        sa.select(envelope.emitter_id, envelope.state, envelope.origin_id, is_gone)
        .outerjoin(model.archived_envelope, archived.envelope_id == envelope.id)
        .where(envelope.id == envelope_id, sa.or_(~is_gone, archived.envelope_id.is_not(None)))
    )
    row = connection.execute(wanted).one_or_none()
    if row is None:
        return None
    emitter_id, state, origin_id, gone = row
    events = _past_events(connection, envelope_id)
    return Past(envelope_id, emitter_id, EnvelopeState(state), origin_id, bool(gone), events)


def _past_events(connection: sa.Connection, envelope_id: UUID) -> tuple[PastEvent, ...]:
    event = model.event.c
    statement = (
        sa.select(
            *(event.id, sa.func.coalesce(event.origin_id, event.id), event.number, model.event_type.c.name),
            *(event.event_type_id, event.graph_id, event.estimate, event["items"], *model.EVENT_TAGS),
        )
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .where(event.envelope_id == envelope_id)
        .order_by(event.number)
    )
    return tuple(
        PastEvent(event_id, segments_id, number, name, type_id, graph_id, estimate, items, EventTags(*tags))
        for event_id, segments_id, number, name, type_id, graph_id, estimate, items, *tags in connection.execute(
            statement
        )
    )


def read_first_names(connection: sa.Connection, type_ids: Collection[int]) -> dict[int, str]:
    """Read by id the names with which event types were made: hashes hold these."""
    event_type = model.event_type.c
    rows = connection.execute(sa.select(event_type.id, event_type.first_name).where(event_type.id.in_(type_ids)))
    return {row.id: row.first_name for row in rows}


def read_standing(connection: sa.Connection, event_id: UUID) -> RepeatStatus | None:
    """Read the repeat status of an event's envelope; None if the event does not exist."""
    wanted = sa.select(model.event.c.envelope_id).where(model.event.c.id == event_id)
    envelope_id = connection.execute(wanted).scalar_one_or_none()
    past = None if envelope_id is None else read_past(connection, envelope_id)
    if past is None:
        return None
    # What is parked is read first: who finds nothing parked finds what became of it.
    parked = read_parked(connection, past.envelope_id)
    return RepeatStatus(past, parked, read_retries(connection, past.envelope_id))


def read_parked(connection: sa.Connection, envelope_id: UUID) -> tuple[ParkedRole, ...]:
    """Read the roles for which an envelope is parked, by id."""
    statement = (
        sa.select(model.role.c.id, model.role.c.login, model.role.c.service_id, model.role.c.removed_at.is_not(None))
        .join(model.delivery, model.delivery.c.role_id == model.role.c.id)
        .where(model.delivery.c.envelope_id == envelope_id, model.delivery.c.state == DeliveryState.PARKED.value)
        .order_by(model.role.c.id)
    )
    return tuple(ParkedRole(row[0], row[1], row[2], bool(row[3])) for row in connection.execute(statement))


def read_retries(connection: sa.Connection, envelope_id: UUID) -> dict[int, UUID]:
    """Read for each role with a retry the latest envelope that repeats this one; the latest last.

    A replay is left out: its role may have got the envelope itself, too.
    """
    return read_retries_of(connection, [envelope_id]).get(envelope_id, {})


def read_retries_of(connection: sa.Connection, envelope_ids: Collection[UUID]) -> dict[UUID, dict[int, UUID]]:
    """Read the retries of some envelopes, as :func:`read_retries` does of one."""
    first = model.event.alias("first")
    again, repeat = model.event.alias("again"), model.envelope.alias("repeat")
    # By way of the first event, as the events that repeat others are indexed; an envelope without events is owed to
    # nobody, so none of its deliveries is ever parked.
    statement = (
        sa.select(first.c.envelope_id, model.envelope_role.c.role_id, repeat.c.id)
        .select_from(first)
        .join(again, again.c.origin_id == sa.func.coalesce(first.c.origin_id, first.c.id))
        .join(repeat, repeat.c.id == again.c.envelope_id)
        .join(model.envelope_role, model.envelope_role.c.envelope_id == repeat.c.id)
        .where(first.c.envelope_id.in_(envelope_ids), first.c.number == 1)
        .where(again.c.number == 1, repeat.c.origin_id == first.c.envelope_id)
        .where(model.envelope_role.c.replay.is_(None))
        .order_by(repeat.c.position)
    )
    retries: dict[UUID, dict[int, UUID]] = {}
    for envelope_id, role_id, repeat_id in connection.execute(statement):
        of_envelope = retries.setdefault(envelope_id, {})
        of_envelope.pop(role_id, None)
        of_envelope[role_id] = repeat_id
    return retries


def read_event_id(connection: sa.Connection, envelope_id: UUID, number: int) -> UUID:
    """Read the id of the event of this number in an envelope that has it."""
    event = model.event.c
    wanted = sa.select(event.id).where(event.envelope_id == envelope_id, event.number == number)
    event_id: UUID = connection.execute(wanted).scalar_one()
    return event_id


def read_consumer_services(connection: sa.Connection, graph_ids: Collection[int]) -> dict[int, frozenset[int]]:
    """Read for each of these graphs the ids of the consumer services to which it leads."""
    statement = (
        sa.select(model.node.c.graph_id, model.node.c.service_id)
        .join(model.service, model.service.c.id == model.node.c.service_id)
        .where(model.node.c.graph_id.in_(graph_ids), model.service.c.kind == "consumer")
    )
    services = grouped(connection.execute(statement))
    return {graph_id: frozenset(services[graph_id]) for graph_id in graph_ids}
