"""What a person who asks after an envelope wants to see; every answer is bounded, however much the journal holds."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.cursor import Cursor
from xbus.broker.journal.event_states import DONE, OWED, EventState, event_state
from xbus.broker.journal.reading import read_cursors
from xbus.broker.journal.repeats import read_retries
from xbus.broker.journal.statements.repeating import RETRIED
from xbus.broker.journal.tracking import FailureSummary, list_failures
from xbus.states import DeliveryState, EnvelopeState

MOST_COUNTED = 1000
"""Up to here what is owed is counted; beyond it the number tells nobody more."""

MOST_EVENTS = 100
MOST_FAILURES = 100
"""How many events and failures of one envelope are shown."""


@dataclass(frozen=True, slots=True)
class EnvelopeSummary:
    """An envelope in a list.

    Args:
        position: None unless it is received, and so are ``events``, ``items`` and ``bytes``.
        origin: the envelope that it repeats, if any.
        only_roles: the logins of the roles that it is for; None for all that its graphs lead to.
    """

    id: UUID
    state: EnvelopeState
    position: int | None
    emitter: str
    opened_at: datetime
    closed_at: datetime | None
    events: int | None
    items: int | None
    bytes: int | None
    origin: UUID | None
    only_roles: tuple[str, ...] | None
    roles: tuple["RoleProgress", ...]


@dataclass(frozen=True, slots=True)
class RoleProgress:
    """What became of an envelope at one consumer role.

    Args:
        role: the role's login; None for a service that never had a role.
        service: the service that the envelope's graphs ask for.
        state: ``done``, ``owed`` (its turn is to come), ``retried`` (it came again as another envelope, which the cause
            names), or a :class:`~xbus.states.DeliveryState`.
        attempts: how often it was handed over, as far as that was counted.
        code: why it did not go the normal way; None where it did.
        cause: the same in a sentence.
        changed_at: when it came into that state, where that is known.
        under_way: whether it may just be in the role's hands, as far as the journal can tell.
    """

    role: str | None
    service: str
    state: str
    attempts: int | None = None
    code: str | None = None
    cause: str | None = None
    changed_at: datetime | None = None
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class EventSummary:
    """An event of an envelope; ``items`` is None until it is ended, ``estimate`` is what its emitter expected."""

    id: UUID
    number: int
    type: str
    state: EventState
    items: int | None
    estimate: int


@dataclass(frozen=True, slots=True)
class EnvelopeDetail:
    """An envelope with its first events, and the newest failures, newest first."""

    summary: EnvelopeSummary
    hash: bytes | None
    event_list: tuple[EventSummary, ...]
    failures: tuple[FailureSummary, ...]


def list_envelopes(
    connection: sa.Connection, *, state: EnvelopeState | None = None, before: UUID | None = None, limit: int = 20
) -> list[EnvelopeSummary]:
    """Envelopes by falling id, which for ids of the bus is newest first.

    Args:
        state: only those in this state.
        before: only those below this id: the last one of the page before.
        limit: how many at the most.
    """
    statement = _summaries().order_by(model.envelope.c.id.desc()).limit(limit)
    if state is not None:
        statement = statement.where(model.envelope.c.state == state.value)
    if before is not None:
        statement = statement.where(model.envelope.c.id < before)
    cursors = read_cursors(connection)
    return [_summary(connection, row, cursors) for row in connection.execute(statement).all()]


def show_envelope(connection: sa.Connection, envelope_id: UUID) -> EnvelopeDetail | None:
    """All about one envelope; None where there is none of that id."""
    row = connection.execute(_summaries().where(model.envelope.c.id == envelope_id)).one_or_none()
    if row is None:
        return None
    summary = _summary(connection, row, read_cursors(connection))
    return EnvelopeDetail(
        summary,
        None if row.hash is None else bytes(row.hash),
        tuple(_events(connection, summary)),
        tuple(list_failures(connection, envelope_id=envelope_id, limit=MOST_FAILURES)),
    )


def count_owed(connection: sa.Connection, login: str) -> int:
    """How many envelopes a consumer role has not got yet, :data:`MOST_COUNTED` at the most; 0 for a worker role."""
    row = connection.execute(
        sa.select(model.role.c.id, model.role.c.service_id).where(model.role.c.login == login)
    ).one()
    cursor = read_cursors(connection).get(row.id)
    if cursor is None:
        return 0
    ahead = (
        sa.select(model.envelope.c.position)
        .where(model.envelope.c.position > cursor.position, _asks_for(row.service_id), _is_for(row.id))
        .order_by(model.envelope.c.position)
        .limit(MOST_COUNTED + cursor.above.bit_count())
    )
    positions = connection.execute(ahead).scalars().all()
    unsettled = sum(cursor.owes(position) and not cursor.is_settled(position) for position in positions)
    own_rows = connection.execute(
        sa.select(sa.func.count()).select_from(model.delivery).where(model.delivery.c.role_id == row.id)
    ).scalar_one()
    return min(unsettled + int(own_rows), MOST_COUNTED)


def _asks_for(service_id: int) -> sa.ColumnElement[bool]:
    """Whether a graph of an envelope's events has a node of the service."""
    return sa.exists().where(
        model.event.c.envelope_id == model.envelope.c.id,
        model.node.c.graph_id == model.event.c.graph_id,
        model.node.c.service_id == service_id,
    )


def _is_for(role_id: int) -> sa.ColumnElement[bool]:
    """Whether an envelope is for a role, where it is for some roles only."""
    named = model.envelope_role.c
    of_envelope = named.envelope_id == model.envelope.c.id
    return sa.or_(
        model.envelope.c.origin_id.is_(None),
        ~sa.exists().where(of_envelope),
        sa.exists().where(of_envelope, named.role_id == role_id),
    )


def _summaries() -> sa.Select[Any]:
    return sa.select(model.envelope, model.emitter.c.login).join(
        model.emitter, model.emitter.c.id == model.envelope.c.emitter_id
    )


def _summary(connection: sa.Connection, row: sa.Row[Any], cursors: dict[int, Cursor]) -> EnvelopeSummary:
    found = row._mapping
    position = found["position"]
    only_roles = None if found["origin_id"] is None else _only_roles(connection, found["id"])
    return EnvelopeSummary(
        id=found["id"],
        state=EnvelopeState(found["state"]),
        position=position,
        emitter=found["login"],
        opened_at=found["opened_at"],
        closed_at=found["closed_at"],
        events=found["events"],
        items=found["items"],
        bytes=found["bytes"],
        origin=found["origin_id"],
        only_roles=only_roles,
        roles=() if position is None else tuple(_progress(connection, found["id"], position, cursors, only_roles)),
    )


def _only_roles(connection: sa.Connection, envelope_id: UUID) -> tuple[str, ...] | None:
    statement = (
        sa.select(model.role.c.login)
        .join(model.envelope_role, model.envelope_role.c.role_id == model.role.c.id)
        .where(model.envelope_role.c.envelope_id == envelope_id)
        .order_by(model.role.c.login)
    )
    return tuple(connection.execute(statement).scalars()) or None


def _progress(
    connection: sa.Connection,
    envelope_id: UUID,
    position: int,
    cursors: dict[int, Cursor],
    only_roles: tuple[str, ...] | None,
) -> Iterator[RoleProgress]:
    """Where the envelope stands with each consumer role that is or was owed it, sorted by service and login."""
    deliveries = {
        row.role_id: row
        for row in connection.execute(sa.select(model.delivery).where(model.delivery.c.envelope_id == envelope_id))
    }
    retries = read_retries(connection, envelope_id)
    for service, role_id, login, removed_at, registered in connection.execute(_roles_of(envelope_id)):
        if only_roles is not None and login not in only_roles:
            continue
        cursor = cursors.get(role_id)
        if role_id is None:
            yield RoleProgress(None, service, OWED, cause="the service has no role yet")
        elif row := deliveries.get(role_id):
            under_way = row.state == DeliveryState.RETRY and row.attempts > 0 and registered
            yield RoleProgress(login, service, row.state, row.attempts, row.code, row.cause, row.changed_at, under_way)
        elif role_id in retries:
            yield RoleProgress(login, service, RETRIED, cause=f"comes again as envelope {retries[role_id]}")
        elif cursor is not None and cursor.owes(position):
            settled = cursor.is_settled(position)
            cause = "the role is removed" if removed_at is not None and not settled else None
            # What a role was given stays noted while it is away, and some more is noted ahead of it.
            under_way = not settled and position <= cursor.handed_to and registered
            yield RoleProgress(login, service, DONE if settled else OWED, cause=cause, under_way=under_way)


def _roles_of(envelope_id: UUID) -> sa.Select[Any]:
    """Service, role, its removal and whether it is registered, for each consumer service that the graphs lead to."""
    return (
        sa.select(
            model.service.c.name,
            model.role.c.id,
            model.role.c.login,
            model.role.c.removed_at,
            model.registration.c.role_id.is_not(None),
        )
        .select_from(model.event)
        .join(model.node, model.node.c.graph_id == model.event.c.graph_id)
        .join(model.service, model.service.c.id == model.node.c.service_id)
        .outerjoin(model.role, model.role.c.service_id == model.service.c.id)
        .outerjoin(model.registration, model.registration.c.role_id == model.role.c.id)
        .where(model.event.c.envelope_id == envelope_id, model.service.c.kind == "consumer")
        .distinct()
        .order_by(model.service.c.name, model.role.c.login)
    )


def _events(connection: sa.Connection, envelope: EnvelopeSummary) -> Iterator[EventSummary]:
    services = _consumer_services(connection, envelope.id)
    statement = (
        sa.select(
            model.event.c.id,
            model.event.c.number,
            model.event_type.c.name,
            model.event.c["items"],
            model.event.c.estimate,
            model.event.c.graph_id,
        )
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .where(model.event.c.envelope_id == envelope.id)
        .order_by(model.event.c.number)
        .limit(MOST_EVENTS)
    )
    for event_id, number, type_name, items, estimate, graph_id in connection.execute(statement):
        concerned = [role for role in envelope.roles if role.service in services[graph_id]]
        yield EventSummary(event_id, number, type_name, event_state(envelope.state, concerned), items, estimate)


def _consumer_services(connection: sa.Connection, envelope_id: UUID) -> dict[int, set[str]]:
    """For each graph of the envelope's events the consumer services that it leads to."""
    statement = (
        sa.select(model.event.c.graph_id, model.service.c.name)
        .join(model.node, model.node.c.graph_id == model.event.c.graph_id)
        .join(model.service, model.service.c.id == model.node.c.service_id)
        .where(model.event.c.envelope_id == envelope_id, model.service.c.kind == "consumer")
        .distinct()
    )
    services: dict[int, set[str]] = defaultdict(set)
    for graph_id, service in connection.execute(statement):
        services[graph_id].add(service)
    return services
