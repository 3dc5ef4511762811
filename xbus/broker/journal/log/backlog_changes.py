"""Administrators' decisions about owed envelopes, as the back reads them. Each function is one short read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, value_of
from xbus.broker.journal.log.contents import find_listed
from xbus.broker.journal.log.deliveries import SELECT_DELIVERIES, as_delivery
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.log.reading import LogEnvelope, read_at
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import EnvelopeState

FIRST_GRAPH = "first_graph"
"""Events of a type that led nowhere take its first graph."""

MOST_ENVELOPES = 500
"""The most envelopes that a step concerns."""

SPAN = 5_000
"""Positions that one step reads where the log is not listed; most have no wanted event."""


@dataclass(frozen=True, slots=True)
class BacklogChange:
    """A row of ``model.decision``.

    Args:
        id: its own.
        move: what becomes of what is owed: ``dropped``, ``rerouted`` or :data:`FIRST_GRAPH`.
        at: when it was decided.
        reason: what was decided, for the history.
        role_id: the removed role that it is about; None where a graph was edited.
        to_role_id: the role that gets it instead.
        graph_id: the new version of the edited graph.
        position: all envelopes up to here are dealt with.
        until: the last position that it is about; None for as long as any may turn up.
        graphs: the versions of graphs whose events it is about.
        services: the consumer services that those lead to and that are to get nothing more.
    """

    id: int
    move: str
    at: datetime
    reason: str
    role_id: int | None
    to_role_id: int | None
    graph_id: int | None
    position: int
    until: int | None
    graphs: frozenset[int]
    services: frozenset[str]


@dataclass(frozen=True, slots=True)
class OwedRole:
    """A consumer role as a decision needs it."""

    service: str
    in_use: bool
    ordered: bool


@dataclass(frozen=True, slots=True)
class Concerned:
    """The envelopes and rows in a part of the log that a decision concerns.

    Args:
        upto: the last position of the part.
        envelopes: with events of its graphs, in position order.
        rows: their delivery rows, by role and envelope.
        roles: all present and former consumer roles, by id.
    """

    upto: int
    envelopes: Sequence[LogEnvelope]
    rows: Mapping[tuple[int, UUID], DeliveryRow]
    roles: Mapping[int, OwedRole]


def read_decisions(connection: sa.Connection) -> list[BacklogChange]:
    """Read the decisions that are not carried out yet, the oldest first."""
    decisions = []
    for row in connection.execute(sa.select(model.decision).order_by(model.decision.c.id)).all():
        graphs, services = _subject(connection, row)
        decisions.append(value_of(BacklogChange, row, until=row.until_position, graphs=graphs, services=services))
    return decisions


def _subject(connection: sa.Connection, decision: NamedRow) -> tuple[frozenset[int], frozenset[str]]:
    if decision.move == FIRST_GRAPH:
        return empty_versions(connection, decision.graph_id), frozenset()
    if decision.graph_id is not None:
        return lost_services(connection, decision.graph_id)
    service = connection.execute(
        sa.select(model.service.c.id, model.service.c.key).join(model.role).where(model.role.c.id == decision.role_id)
    ).one()
    leading = sa.select(model.node.c.graph_id).where(model.node.c.service_id == service.id)
    return frozenset(connection.execute(leading).scalars()), frozenset({service.key})


def empty_versions(connection: sa.Connection, graph_id: int) -> frozenset[int]:
    """Collect the versions of a type's graph before one of them that led nowhere."""
    return frozenset(found for found, services in _older(connection, graph_id).values() if not services)


def lost_services(connection: sa.Connection, graph_id: int) -> tuple[frozenset[int], frozenset[str]]:
    """Collect, by key, the consumer services that a version of a graph lost, and the older versions with them."""
    older = _older(connection, graph_id)
    if not older:
        return frozenset(), frozenset()
    lost = older[max(older)][1] - _consumers(connection, model.graph.c.id == graph_id)[graph_id]
    return frozenset(found for found, services in older.values() if services & lost), lost


def _older(connection: sa.Connection, graph_id: int) -> dict[int, tuple[int, frozenset[str]]]:
    """Read the versions before one, by number: their ids, and the consumer services to which they lead."""
    version = connection.execute(sa.select(model.graph).where(model.graph.c.id == graph_id)).one()
    of_type = sa.and_(model.graph.c.event_type_id == version.event_type_id, model.graph.c.number < version.number)
    consumers = _consumers(connection, of_type)
    versions = connection.execute(sa.select(model.graph.c.id, model.graph.c.number).where(of_type))
    return {number: (found, consumers[found]) for found, number in versions}


def _consumers(connection: sa.Connection, which: sa.ColumnElement[bool]) -> dict[int, frozenset[str]]:
    """Read the consumer services to which some versions of graphs lead, by the id of the version."""
    services: dict[int, set[str]] = {}
    for graph_id, name in connection.execute(
        sa.select(model.graph.c.id, model.service.c.key)
        .outerjoin(model.node, model.node.c.graph_id == model.graph.c.id)
        .outerjoin(
            model.service, sa.and_(model.service.c.id == model.node.c.service_id, model.service.c.kind == "consumer")
        )
        .where(which)
    ):
        services.setdefault(graph_id, set()).update([] if name is None else [name])
    return {graph_id: frozenset(found) for graph_id, found in services.items()}


def read_concerned(connection: sa.Connection, graphs: Collection[int], after: int, upto: int) -> Concerned:
    """Read what a decision about some graphs concerns above a position, and up to another at the most."""
    listed = find_listed(connection, graphs, after, MOST_ENVELOPES, until=upto)
    if listed.upto > after:
        named = read_at(connection, listed.positions)
        envelopes = [each for each in named if any(event.graph_id in graphs for event in each.events)]
        return _concerned(connection, listed.upto, envelopes)
    return _read_span(connection, graphs, after, min(upto, after + SPAN))


def _read_span(connection: sa.Connection, graphs: Collection[int], after: int, upto: int) -> Concerned:
    """Look at all of a span that is not listed yet."""
    position, event = model.envelope.c.position, model.event.c
    positions = connection.execute(
        sa.select(position)
        .join(model.event, event.envelope_id == model.envelope.c.id)
        .where(position > after, position <= upto, event.graph_id.in_(graphs))
        .distinct()
        .order_by(position)
        .limit(MOST_ENVELOPES)
    )
    found = positions.scalars().all()
    envelopes = read_at(connection, found)
    return _concerned(connection, upto if len(found) < MOST_ENVELOPES else found[-1], envelopes)


def _concerned(connection: sa.Connection, upto: int, envelopes: Sequence[LogEnvelope]) -> Concerned:
    rows = _read_rows(connection, [envelope.envelope_id for envelope in envelopes])
    return Concerned(upto, envelopes, rows, _read_roles(connection))


def _read_rows(connection: sa.Connection, envelope_ids: Collection[UUID]) -> dict[tuple[int, UUID], DeliveryRow]:
    rows = connection.execute(SELECT_DELIVERIES.where(model.delivery.c.envelope_id.in_(envelope_ids)))
    return {(row.role_id, row.envelope_id): as_delivery(row) for row in rows}


def _read_roles(connection: sa.Connection) -> dict[int, OwedRole]:
    statement = (
        sa.select(model.role, model.service.c.key.label("service"))
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .where(model.service.c.kind == "consumer")
    )
    return {row.id: OwedRole(row.service, row.removed_at is None, row.ordered) for row in connection.execute(statement)}


def is_open(connection: sa.Connection, graphs: Collection[int]) -> bool:
    """Check whether an open envelope has events of some graphs."""
    envelope, event = model.envelope.c, model.event.c
    statement = (
        sa.select(envelope.id)
        .join(model.event, event.envelope_id == envelope.id)
        .where(is_in(EnvelopeState.OPEN), event.graph_id.in_(graphs))
    )
    return connection.execute(statement.limit(1)).first() is not None
