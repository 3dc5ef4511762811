"""Tells where an envelope stands with each of its consumer roles, for people who ask."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows, grouped
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.contents import find_listed
from xbus.broker.journal.log.deliveries import WORKER_ABSENT, read_cursors, worker_absent
from xbus.broker.journal.log.event_states import DONE, DROPPED, OWED, REROUTED, RETRIED
from xbus.broker.journal.log.repeats import read_retries_of
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


class ProgressReader:
    """Reads how some envelopes are at their roles: each kind of row once for all of them, however many they are.

    Args:
        connection: reads.
        envelope_ids: so many as a statement takes.
        cursors: of all consumer roles, by role id.
    """

    def __init__(
        self, connection: sa.Connection, envelope_ids: Collection[UUID], cursors: Mapping[int, Cursor]
    ) -> None:
        self._connection = connection
        self._cursors = cursors
        self._deliveries = _read_deliveries(connection, envelope_ids)
        self._retries = read_retries_of(connection, envelope_ids)
        self._roles: dict[UUID, list[NamedRow]] = {envelope_id: [] for envelope_id in envelope_ids}
        for row in connection.execute(_roles_of(envelope_ids)):
            self._roles[row.envelope_id].append(row)
        self._only_roles = _read_only_roles(connection, envelope_ids)
        self._let_go = _read_let_go(connection, self._undecided())
        self._pauses = read_pauses(connection)
        self._workers: dict[int, _Worker] = {}

    def only_roles(self, envelope_id: UUID) -> tuple[str, ...] | None:
        """Give the logins of the roles that an envelope is for; None for all."""
        return self._only_roles.get(envelope_id)

    def of(self, envelope_id: UUID, position: int) -> Iterator[RoleProgress]:
        """Describe a received envelope's progress at each role that is or was owed it, by service and login."""
        only_roles, retries = self.only_roles(envelope_id), self._retries.get(envelope_id, {})
        for role in self._roles[envelope_id]:
            if only_roles is not None and role.login not in only_roles:
                continue
            if role.role_id is None:
                yield RoleProgress(None, role.service, OWED, cause="the service has no role yet")
            elif row := self._deliveries.get((envelope_id, role.role_id)):
                under_way = row.state == DeliveryState.RETRY and row.attempts > 0 and role.is_registered
                why = self._why_in_row(row, pause_of_role(self._pauses, role.role_id, role.service_id))
                yield RoleProgress(role.login, role.service, row.state, row.attempts, *why, row.changed_at, under_way)
            elif role.role_id in retries:
                cause = f"comes again as envelope {retries[role.role_id]}"
                yield RoleProgress(role.login, role.service, RETRIED, cause=cause)
            elif let_go := self._let_go.get(_subject(envelope_id, role.role_id)):
                yield RoleProgress(role.login, role.service, let_go.move, cause=let_go.reason)
            elif (cursor := self._cursors.get(role.role_id)) is not None and cursor.owes(position):
                yield self._by_cursor(role, cursor, position)

    def _by_cursor(self, role: NamedRow, cursor: Cursor, position: int) -> RoleProgress:
        settled, pause = cursor.is_settled(position), pause_of_role(self._pauses, role.role_id, role.service_id)
        cause = "the role is removed" if role.removed_at is not None and not settled else None
        # What a role was given stays noted while it is away, and some more is noted ahead of it.
        under_way = not settled and position <= cursor.handed_to and role.is_registered
        code = None if pause is None or settled or cause else PAUSED
        if pause is not None and code is not None:
            cause = pause.told
        state = DONE if settled else OWED
        return RoleProgress(role.login, role.service, state, None, code, cause, under_way=under_way)

    def _undecided(self) -> Iterator[str]:
        """Iterate over what only the history or a cursor knows, as the history names it."""
        for envelope_id, roles in self._roles.items():
            known = self._retries.get(envelope_id, {})
            for role_id in {role.role_id for role in roles} - known.keys() - {None}:
                if (envelope_id, role_id) not in self._deliveries:
                    yield _subject(envelope_id, role_id)

    def _why_in_row(self, row: NamedRow, pause: PauseEntry | None) -> tuple[str, str]:
        """Give code and cause of a delivery row as they are now: a pause may have begun or ended since then."""
        code, cause = row.code, row.cause
        if row.service_id is not None and (self._pauses or code == PAUSED):
            worker = self._worker(row.service_id)
            if worker.pause is not None:
                code, cause = PAUSED, worker.pause.told
            elif code == PAUSED:
                code, cause = WORKER_ABSENT, worker_absent(worker.name)
        if pause is not None and row.state != DeliveryState.PARKED:
            cause = f"{cause}; the {pause.told}" if cause else pause.told
        return code, cause

    def _worker(self, service_id: int) -> "_Worker":
        if service_id not in self._workers:
            self._workers[service_id] = _read_worker(self._connection, service_id, self._pauses)
        return self._workers[service_id]


class _Worker(NamedTuple):
    """A worker service: its name, and the pause that ends last where all of its roles are paused."""

    name: str
    pause: PauseEntry | None


def _read_worker(connection: sa.Connection, service_id: int, pauses: Pauses) -> _Worker:
    name = connection.execute(sa.select(model.service.c.name).where(model.service.c.id == service_id)).scalar_one()
    of_service = sa.select(model.role.c.id).where(
        model.role.c.service_id == service_id, model.role.c.removed_at.is_(None)
    )
    found = [pause_of_role(pauses, role_id, service_id) for role_id in connection.execute(of_service).scalars()]
    return _Worker(name, None if None in found else longest(found))


def _read_deliveries(connection: sa.Connection, envelope_ids: Collection[UUID]) -> dict[tuple[UUID, int], NamedRow]:
    rows = connection.execute(sa.select(model.delivery).where(model.delivery.c.envelope_id.in_(envelope_ids)))
    return {(row.envelope_id, row.role_id): row for row in rows}


def _subject(envelope_id: UUID, role_id: int) -> str:
    """Name a delivery as the history does."""
    return f"{role_id} {envelope_id}"


def _read_let_go(connection: sa.Connection, subjects: Iterable[str]) -> dict[str, NamedRow]:
    """Read which roles do without an envelope, or got it by a repeat, and why."""
    history, rest = model.history.c, iter(subjects)
    found: dict[str, NamedRow] = {}
    while some := [*islice(rest, PAGE_POSITIONS)]:
        rows = connection.execute(
            sa.select(history.subject_id, history.move, history.reason)
            .where(history.subject == "delivery", history.subject_id.in_(some), history.move.in_([DROPPED, REROUTED]))
            .order_by(history.id)
        )
        found.update({row.subject_id: row for row in rows})
    return found


def _read_only_roles(connection: sa.Connection, envelope_ids: Collection[UUID]) -> dict[UUID, tuple[str, ...]]:
    """Read by envelope the logins of the roles that it is for; one that is for all has none."""
    named = model.envelope_role.c
    statement = (
        sa.select(named.envelope_id, model.role.c.login)
        .join(model.role, named.role_id == model.role.c.id)
        .where(named.envelope_id.in_(envelope_ids))
        .order_by(model.role.c.login)
    )
    return {envelope_id: tuple(logins) for envelope_id, logins in grouped(connection.execute(statement)).items()}


def _roles_of(envelope_ids: Collection[UUID]) -> NamedRows:
    """Read service, role, its removal and registration for each consumer service to which the graphs lead."""
    return (
        sa.select(
            model.event.c.envelope_id,
            model.service.c.name.label("service"),
            model.role.c.id.label("role_id"),
            model.role.c.login,
            model.role.c.removed_at,
            model.registration.c.role_id.is_not(None).label("is_registered"),
            model.service.c.id.label("service_id"),
        )
        .select_from(model.event)
        .join(model.node, model.node.c.graph_id == model.event.c.graph_id)
        .join(model.service, model.service.c.id == model.node.c.service_id)
        .outerjoin(model.role, model.role.c.service_id == model.service.c.id)
        .outerjoin(model.registration, model.registration.c.role_id == model.role.c.id)
        .where(model.event.c.envelope_id.in_(envelope_ids), model.service.c.kind == "consumer")
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
