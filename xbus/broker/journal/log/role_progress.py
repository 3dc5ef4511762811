"""Tells where an envelope stands with each of its consumer roles, for people who ask."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.contents import find_listed
from xbus.broker.journal.log.deliveries import WORKER_ABSENT, read_cursors, worker_absent
from xbus.broker.journal.log.event_states import DONE, DROPPED, OWED, REROUTED, RETRIED
from xbus.broker.journal.log.repeats import read_retries
from xbus.broker.journal.writes import PAUSED, PauseEntry, Pauses, longest, pause_of_role
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import DeliveryState

MOST_COUNTED = 1000
"""The most owed envelopes that are counted; a larger number helps nobody."""

PAGE_POSITIONS = 500
"""So many positions that the table of contents names are looked at in one statement."""


@dataclass(frozen=True, slots=True)
class RoleProgress:
    """The progress of an envelope at one consumer role.

    Args:
        role: the role's login; None for a service that never had a role.
        service: the service that the envelope's graphs ask for.
        state: ``done``, ``owed`` (its turn is to come), ``retried`` (it came again as another envelope, which the cause
            names), ``dropped`` or ``rerouted`` (somebody decided so, see the cause), or a
            :class:`~xbus.states.DeliveryState`.
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


def role_progress(
    connection: sa.Connection,
    envelope_id: UUID,
    position: int,
    cursors: dict[int, Cursor],
    only_roles: tuple[str, ...] | None,
) -> Iterator[RoleProgress]:
    """Describe a received envelope's progress at each role that is or was owed it, by service and login.

    Args:
        position: the envelope's.
        cursors: of all consumer roles, by role id.
        only_roles: the logins of the roles that the envelope is for; None for all.
    """
    deliveries = {
        row.role_id: row
        for row in connection.execute(sa.select(model.delivery).where(model.delivery.c.envelope_id == envelope_id))
    }
    retries = read_retries(connection, envelope_id)
    roles = connection.execute(_roles_of(envelope_id)).all()
    let_go = _read_let_go(connection, envelope_id, [role.id for role in roles if role.id is not None])
    pauses = read_pauses(connection)
    for service, role_id, login, removed_at, registered, service_id in roles:
        if only_roles is not None and login not in only_roles:
            continue
        if role_id is None:
            yield RoleProgress(None, service, OWED, cause="the service has no role yet")
            continue
        cursor = cursors.get(role_id)
        pause = pause_of_role(pauses, role_id, service_id)
        if row := deliveries.get(role_id):
            under_way = row.state == DeliveryState.RETRY and row.attempts > 0 and registered
            why = _why_in_row(connection, row, pause, pauses)
            yield RoleProgress(login, service, row.state, row.attempts, *why, row.changed_at, under_way)
        elif role_id in retries:
            yield RoleProgress(login, service, RETRIED, cause=f"comes again as envelope {retries[role_id]}")
        elif role_id in let_go:
            move, reason = let_go[role_id]
            yield RoleProgress(login, service, move, cause=reason)
        elif cursor is not None and cursor.owes(position):
            settled = cursor.is_settled(position)
            cause = "the role is removed" if removed_at is not None and not settled else None
            # What a role was given stays noted while it is away, and some more is noted ahead of it.
            under_way = not settled and position <= cursor.handed_to and registered
            code = None if pause is None or settled or cause else PAUSED
            if pause is not None and code is not None:
                cause = pause.told
            yield RoleProgress(login, service, DONE if settled else OWED, None, code, cause, under_way=under_way)


def _why_in_row(connection: sa.Connection, row: NamedRow, pause: PauseEntry | None, pauses: Pauses) -> tuple[str, str]:
    """Give code and cause of a delivery row as they are now: a pause may have begun or ended since it was written."""
    code, cause = row.code, row.cause
    if row.service_id is not None and (pauses or code == PAUSED):
        of_worker = _pause_of_worker(connection, row.service_id, pauses)
        if of_worker is not None:
            code, cause = PAUSED, of_worker.told
        elif code == PAUSED:
            code, cause = WORKER_ABSENT, worker_absent(_service_name(connection, row.service_id))
    if pause is not None and row.state != DeliveryState.PARKED:
        cause = f"{cause}; the {pause.told}" if cause else pause.told
    return code, cause


def _service_name(connection: sa.Connection, service_id: int) -> str:
    name: str = connection.execute(sa.select(model.service.c.name).where(model.service.c.id == service_id)).scalar_one()
    return name


def _pause_of_worker(connection: sa.Connection, service_id: int, pauses: Pauses) -> PauseEntry | None:
    """Give the pause that ends last where all roles of a worker service are paused."""
    of_service = sa.select(model.role.c.id).where(
        model.role.c.service_id == service_id, model.role.c.removed_at.is_(None)
    )
    found = [pause_of_role(pauses, role_id, service_id) for role_id in connection.execute(of_service).scalars()]
    return None if None in found else longest(found)


def _read_let_go(connection: sa.Connection, envelope_id: UUID, role_ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Read which roles do without an envelope, or got it by a repeat, and why."""
    subjects = {f"{role_id} {envelope_id}": role_id for role_id in role_ids}
    history = model.history.c
    rows = connection.execute(
        sa.select(history.subject_id, history.move, history.reason)
        .where(history.subject == "delivery", history.subject_id.in_(subjects), history.move.in_([DROPPED, REROUTED]))
        .order_by(history.id)
    )
    return {subjects[subject_id]: (move, reason) for subject_id, move, reason in rows}


def _roles_of(envelope_id: UUID) -> "sa.Select[str, int | None, str | None, datetime | None, bool, int]":
    """Read service, role, its removal and registration for each consumer service to which the graphs lead."""
    return (
        sa.select(
            model.service.c.name,
            model.role.c.id,
            model.role.c.login,
            model.role.c.removed_at,
            model.registration.c.role_id.is_not(None),
            model.service.c.id,
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


def count_owed(connection: sa.Connection, login: str) -> int:
    """Count the envelopes that a consumer role has not got, :data:`MOST_COUNTED` at the most; 0 for a worker."""
    row = connection.execute(
        sa.select(model.role.c.id, model.role.c.service_id).where(model.role.c.login == login)
    ).one()
    cursor = read_cursors(connection).get(row.id)
    if cursor is None:
        return 0
    unsettled = len(read_owed_ahead(connection, cursor, row.service_id, MOST_COUNTED))
    own_rows = connection.execute(
        sa.select(sa.func.count()).select_from(model.delivery).where(model.delivery.c.role_id == row.id)
    ).scalar_one()
    return min(unsettled + int(own_rows), MOST_COUNTED)


def read_owed_ahead(
    connection: sa.Connection, cursor: Cursor, service_id: int, limit: int
) -> list[tuple[int, datetime]]:
    """Read which envelopes a role is owed in their turn, and when each was sealed.

    The part of the log that is listed costs little, however long it is; the rest is read.
    """
    graphs = connection.execute(sa.select(model.node.c.graph_id).where(model.node.c.service_id == service_id))
    leading, position = set(graphs.scalars()), model.envelope.c.position
    wanted = (
        sa.select(position, model.envelope.c.closed_at)
        .where(asks_for(service_id), is_for(cursor.role_id))
        .order_by(position)
    )

    def owed(statement: "sa.Select[int, datetime]") -> Iterator[tuple[int, datetime]]:
        rows = connection.execute(statement)
        return ((at, closed) for at, closed in rows if cursor.owes(at) and not cursor.is_settled(at))

    found: list[tuple[int, datetime]] = []
    after = cursor.position
    # Some of what is read may be settled already.
    most = min(limit + cursor.above.bit_count(), PAGE_POSITIONS)
    while len(found) < limit and (listed := find_listed(connection, leading, after, most)).upto > after:
        found += owed(wanted.where(position.in_(listed.positions)))
        after = listed.upto
    if len(found) < limit:
        found += owed(wanted.where(position > after).limit(limit - len(found) + cursor.above.bit_count()))
    return found[:limit]


def asks_for(service_id: int) -> sa.ColumnElement[bool]:
    """Build the condition that a graph of an envelope's events has a node of the service."""
    return sa.exists().where(
        model.event.c.envelope_id == model.envelope.c.id,
        model.node.c.graph_id == model.event.c.graph_id,
        model.node.c.service_id == service_id,
    )


def is_for(role_id: int) -> sa.ColumnElement[bool]:
    """Build the condition that an envelope is for a role, if it is for some roles only."""
    named = model.envelope_role.c
    of_envelope = named.envelope_id == model.envelope.c.id
    return sa.or_(
        model.envelope.c.origin_id.is_(None),
        ~sa.exists().where(of_envelope),
        sa.exists().where(of_envelope, named.role_id == role_id),
    )
