"""Finds the subject of a question: an envelope by its id or its key, or an event of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.overlays import AS_SENT, CONCERNS_EVENT, CORRECTED
from xbus.broker.journal.operations.envelopes.details import DIGITS, resolve_envelope
from xbus.errors import Refused
from xbus.ids import keyed_envelope_id
from xbus.states import EnvelopeState


@dataclass(frozen=True, slots=True)
class EventFacts:
    """An event of an envelope.

    Args:
        services: names of the consumer services to which its graph leads.
        items: None until it is ended.
    """

    id: UUID
    envelope_id: UUID
    number: int
    type: str
    services: frozenset[str]
    items: int | None


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """An item that a role gets otherwise than it was sent, or not with its event.

    Args:
        role: the login of the role; None for all.
        state: as of :class:`~xbus.broker.journal.log.overlays.OverlaidItem`.
        at: since when it is so.
        cause: the words of the recipient, or of the person who corrected it.
        resumed_as: the envelope by which it was sent again; None in other states.
    """

    role: str | None
    state: str
    at: datetime
    cause: str
    resumed_as: UUID | None = None


@dataclass(frozen=True, slots=True)
class EnvelopeEnd:
    """The end of an envelope, as far as its details leave it out.

    Args:
        pruned_at: since when its content counts no more, as it was removed or archived; None while it is here.
        reason: why it was cancelled; None if it was not, or nobody knows.
    """

    pruned_at: datetime | None
    reason: str | None


def find_subject(connection: sa.Connection, digits: str) -> tuple[UUID, EventFacts | None] | None:
    """Find the envelope or the event with an id, or the one envelope whose id begins with some digits.

    Returns:
        The envelope, and its event if the id is that of an event; None if neither has the id.

    Raises:
        Refused: several envelopes begin so (``ambiguous_id``).
    """
    try:
        envelope_id = resolve_envelope(connection, digits)
    except Refused as error:
        if error.code == "ambiguous_id":
            raise
        return None
    if len(digits) < DIGITS or _is_envelope(connection, envelope_id):
        return envelope_id, None
    event = _read_event(connection, model.event.c.id == envelope_id)
    return None if event is None else (event.envelope_id, event)


def _is_envelope(connection: sa.Connection, envelope_id: UUID) -> bool:
    envelope = model.envelope.c
    return connection.execute(sa.select(envelope.id).where(envelope.id == envelope_id)).one_or_none() is not None


def find_keyed(connection: sa.Connection, emitter_id: int, key: str) -> UUID | None:
    """Find the newest envelope to which an emitter gave a key; None if it gave it to none.

    The id of such an envelope is computed of the key, and of how many envelopes with it were cancelled before.
    """
    envelope = model.envelope.c
    newest: UUID | None = None
    for generation in count():
        envelope_id = keyed_envelope_id(emitter_id, key, generation)
        state = connection.execute(sa.select(envelope.state).where(envelope.id == envelope_id)).scalar_one_or_none()
        if state is None:
            return newest
        newest = envelope_id
        if state != EnvelopeState.CANCELLED:
            return newest
    raise AssertionError("numbers don't end")


def read_numbered_event(connection: sa.Connection, envelope_id: UUID, number: int) -> EventFacts | None:
    """Read an event by its number in its envelope, from 1; None if the envelope has not so many."""
    event = model.event.c
    return _read_event(connection, sa.and_(event.envelope_id == envelope_id, event.number == number))


def _read_event(connection: sa.Connection, which: sa.ColumnElement[bool]) -> EventFacts | None:
    event = model.event.c
    statement = (
        sa.select(event.id, event.envelope_id, event.number, model.event_type.c.name, event["items"], event.graph_id)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .where(which)
    )
    found = connection.execute(statement).one_or_none()
    if found is None:
        return None
    event_id, envelope_id, number, type_name, items, graph_id = found
    services = sa.select(model.service.c.name).join(model.node, model.node.c.service_id == model.service.c.id)
    leading = services.where(model.node.c.graph_id == graph_id, model.service.c.kind == "consumer").distinct()
    names = frozenset(connection.execute(leading).scalars())
    return EventFacts(event_id, envelope_id, number, type_name, names, items)


def are_asked(envelope_id: UUID, asked: EventFacts | None) -> sa.ColumnElement[bool]:
    """Build the condition that an event is asked about: the one, or each of the envelope."""
    event = model.event.c
    return event.envelope_id == envelope_id if asked is None else event.id == asked.id


def read_types(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Sequence[str]:
    """Read the types of some events, by name."""
    event_type = model.event_type.c
    statement = (
        sa.select(event_type.name)
        .join(model.event, model.event.c.event_type_id == event_type.id)
        .where(which)
        .distinct()
        .order_by(event_type.name)
    )
    return connection.execute(statement).scalars().all()


def read_led_to(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Sequence[str]:
    """Read the logins of the consumer roles to which the graphs of some events lead, whatever they are owed."""
    node, service, role = model.node.c, model.service.c, model.role.c
    statement = (
        sa.select(role.login)
        .select_from(model.event)
        .join(model.node, node.graph_id == model.event.c.graph_id)
        .join(model.service, service.id == node.service_id)
        .join(model.role, role.service_id == service.id)
        .where(which, service.kind == "consumer")
        .distinct()
        .order_by(role.login)
    )
    return connection.execute(statement).scalars().all()


def read_items(connection: sa.Connection, event_id: UUID, index: int) -> Sequence[ItemFacts]:
    """Read how roles get an item otherwise than it was sent, the oldest first; nothing where they don't."""
    correction, parked, role = model.correction.c, model.parked_item.c, model.role.c
    corrections = (
        sa.select(role.login, correction.after == correction.before, correction.at, correction.reason)
        .select_from(model.event)
        .join(model.correction, CONCERNS_EVENT)
        .outerjoin(model.role, role.id == correction.role_id)
        .where(model.event.c.id == event_id, correction.item_index == index)
        .order_by(correction.id)
    )
    alone = (
        sa.select(role.login, parked.state, parked.changed_at, parked.cause, parked.resumed_as)
        .join(model.role, role.id == parked.role_id)
        .where(parked.event_id == event_id, parked.item_index == index)
        .order_by(role.login)
    )
    found = [
        ItemFacts(login, AS_SENT if is_same else CORRECTED, at, reason)
        for login, is_same, at, reason in connection.execute(corrections)
    ]
    return [*found, *(ItemFacts(*row) for row in connection.execute(alone))]


def read_end(connection: sa.Connection, envelope_id: UUID) -> EnvelopeEnd:
    """Read what has become of an envelope beside its deliveries."""
    envelope, history = model.envelope.c, model.history.c
    pruned_at = connection.execute(sa.select(envelope.pruned_at).where(envelope.id == envelope_id)).scalar_one()
    told = (
        sa.select(history.reason)
        .where(
            history.subject == "envelope",
            history.subject_id == str(envelope_id),
            history.move == EnvelopeState.CANCELLED.value,
        )
        .order_by(history.id.desc())
        .limit(1)
    )
    return EnvelopeEnd(pruned_at, connection.execute(told).scalar_one_or_none())


def read_oldest(connection: sa.Connection) -> datetime | None:
    """Read when the oldest envelope was opened that the journal still knows; None if it knows none."""
    envelope = model.envelope.c
    statement = sa.select(envelope.opened_at).order_by(envelope.opened_at, envelope.id).limit(1)
    opened_at: datetime | None = connection.execute(statement).scalar_one_or_none()
    return opened_at
