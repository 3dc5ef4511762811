"""Deliveries and envelopes that do not get on, as health asks for them.

Each read is bounded: it takes the oldest of a kind from the end of an index, counts up to a limit, or walks through a
part of the log of a given length. None grows with the log, nor with how much waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows, value_of
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import asks_for, is_for
from xbus.broker.journal.operations.roles import COMING
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import DeliveryState, EnvelopeState, ItemState, PresenceState

MOST_COUNTED = 1000
"""Up to here is counted. More would tell nobody more, and would cost more with each that waits."""

MOST_ROWS = 10_000
"""So many of a role's rows are looked at where not all of them count."""

PAGE_POSITIONS = 10_000
"""Positions of one read. More finds the next envelope of a rare type sooner, and reads longer."""


IS_PARKED = model.delivery.c.state == sa.literal_column(f"'{DeliveryState.PARKED.value}'")
"""Written out, for the sake of SQLite: see :func:`~xbus.broker.journal.log.envelopes.is_in`."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """A number of stalled envelopes or items.

    Args:
        number: their number, :data:`MOST_COUNTED` at the most.
        since: since when the oldest of them makes no progress.
        at_least: whether more may exist.
    """

    number: int
    since: datetime
    at_least: bool = False

    def told(self, what: str) -> str:
        """Word the number: ``1 envelope``, ``at least 1,000 envelopes``."""
        return f"{'at least ' if self.at_least else ''}{self.number:,} {what}{'s' * (self.number != 1)}"


@dataclass(frozen=True, slots=True)
class RoleOutline:
    """A role that is in use and on the bus.

    Args:
        absent_since: when its recipient went, as the broker wrote it down; None if it is registered, or was never seen.
        was_seen: whether the broker ever heard of a recipient of it.
        parked_since: when the oldest parked envelope was parked; None without any.
        items_since: the same of items that are parked alone.
        cursor: its cursor; None for a worker.
    """

    role_id: int
    service_id: int
    absent_since: datetime | None
    was_seen: bool
    parked_since: datetime | None
    items_since: datetime | None
    cursor: Cursor | None


@dataclass(frozen=True, slots=True)
class Outline:
    """The roles and services that may be stalled, by the oldest delivery of each kind.

    Args:
        roles: by id.
        waiting: by the key of a worker service, since when the oldest delivery has waited for it.
        head: the end of the log.
    """

    roles: Mapping[int, RoleOutline]
    waiting: Mapping[str, datetime]
    head: int


def read_outline(connection: sa.Connection) -> Outline:
    """Read all roles, and the worker services for which something waits.

    It costs a few index look-ups for each role and each worker service.
    """
    cursors = read_cursors(connection)
    head = read_head(connection)
    roles = {row.role_id: _role_outline(row, cursors.get(row.role_id)) for row in connection.execute(_ROLES)}
    waiting = {row.key: row.since for row in connection.execute(_WAITING) if row.since is not None}
    return Outline(roles, waiting, head)


def count_parked(connection: sa.Connection, role_id: int, most: int = MOST_COUNTED) -> Stalled | None:
    """Count the envelopes that are parked for a role; None without any."""
    delivery = model.delivery.c
    return _count(connection, most, delivery.changed_at, delivery.role_id == role_id, IS_PARKED)


def count_parked_items(connection: sa.Connection, role_id: int, most: int = MOST_COUNTED) -> Stalled | None:
    """Count the items that are parked alone for a role; None without any."""
    item = model.parked_item.c
    return _count(connection, most, item.changed_at, item.role_id == role_id, item.state == ItemState.PARKED.value)


def count_waiting(connection: sa.Connection, service: str, most: int = MOST_COUNTED) -> Stalled | None:
    """Count the envelopes that wait for the worker service with a key; None without any."""
    delivery = model.delivery.c
    service_id = sa.select(model.service.c.id).where(model.service.c.key == service).scalar_subquery()
    oldest = (
        sa.select(delivery.envelope_id, delivery.changed_at)
        .where(delivery.service_id == service_id)
        .order_by(delivery.changed_at)
        .limit(most + 1)
        .subquery()
    )
    # An envelope waits once for each consumer role that it is to reach.
    statement = sa.select(
        sa.func.count(oldest.c.envelope_id.distinct()), sa.func.count(), sa.func.min(oldest.c.changed_at)
    )
    envelopes, rows, since = connection.execute(statement).one()
    return None if since is None else _cut(envelopes, since, rows > most, most)


def count_open(connection: sa.Connection, before: datetime, most: int = MOST_COUNTED) -> Mapping[str, Stalled]:
    """Count the envelopes that have been open since ``before`` or longer, by the login of their emitter."""
    envelope = model.envelope.c
    oldest = (
        sa.select(envelope.emitter_id, envelope.opened_at)
        .where(is_in(EnvelopeState.OPEN), envelope.opened_at <= before)
        .order_by(envelope.opened_at)
        .limit(most + 1)
        .subquery()
    )
    statement = (
        sa.select(model.emitter.c.login, sa.func.count(), sa.func.min(oldest.c.opened_at))
        .join(model.emitter, model.emitter.c.id == oldest.c.emitter_id)
        .group_by(model.emitter.c.login)
    )
    found = connection.execute(statement).all()
    is_cut = sum(number for _, number, _ in found) > most
    return {login: _cut(number, since, is_cut, most) for login, number, since in found}


def count_owed_rows(
    connection: sa.Connection, role_id: int, most: int = MOST_COUNTED, most_rows: int = MOST_ROWS
) -> Stalled | None:
    """Count the envelopes with a row for a role that are redelivered by themselves; None without any.

    They are looked for among the first ``most_rows`` of the role's rows, as others of them may be parked.
    """
    delivery = model.delivery.c
    first = (
        sa.select(delivery.state, delivery.changed_at)
        .where(delivery.role_id == role_id)
        .order_by(delivery.position)
        .limit(most_rows)
        .subquery()
    )
    comes = first.c.state.in_(COMING)
    statement = sa.select(sa.func.count(), sa.func.count().filter(comes), sa.func.min(first.c.changed_at).filter(comes))
    rows, number, since = connection.execute(statement).one()
    return None if since is None else _cut(number, since, rows == most_rows, most)


def find_owed_ahead(
    connection: sa.Connection,
    cursor: Cursor,
    service_id: int,
    after: int,
    page_positions: int = PAGE_POSITIONS,
    most: int = MOST_COUNTED,
) -> tuple[Stalled | None, int]:
    """Find envelopes that a role is owed in their turn, in the next ``page_positions`` of the log.

    Args:
        after: the page begins behind this position; nothing before it is owed.
        page_positions: how many positions are looked at.

    Returns:
        The finding, or None; and a position up to which the role is owed nothing.
    """
    envelope = model.envelope.c
    end = after + page_positions
    statement = (
        sa.select(envelope.position, envelope.closed_at)
        .where(envelope.position > after, envelope.position <= end, asks_for(service_id), is_for(cursor.role_id))
        .order_by(envelope.position)
        .limit(most + 1)
    )
    rows = connection.execute(statement).all()
    head = read_head(connection)
    is_cut = len(rows) > most
    owed = [row for row in rows if cursor.owes(row.position) and not cursor.is_settled(row.position)]
    if not owed:
        return None, rows[-1].position if is_cut else min(end, head)
    return _cut(len(owed), owed[0].closed_at, is_cut or end < head, most), owed[0].position - 1


def add_up(found: Collection[Stalled | None]) -> Stalled | None:
    """Add several up; None without any."""
    some = [stalled for stalled in found if stalled is not None]
    if not some:
        return None
    number = sum(stalled.number for stalled in some)
    return _cut(number, min(stalled.since for stalled in some), any(stalled.at_least for stalled in some), MOST_COUNTED)


def _cut(number: int, since: datetime, at_least: bool, most: int) -> Stalled:
    """A number that is told up to ``most`` only."""
    return Stalled(min(number, most), since, at_least or number > most)


def _count(
    connection: sa.Connection, most: int, column: sa.Column[Any], *which: sa.ColumnElement[bool]
) -> Stalled | None:
    """Count rows, the oldest first, and one more than the limit at the most."""
    oldest = sa.select(column).where(*which).order_by(column).limit(most + 1).subquery()
    number, since = connection.execute(sa.select(sa.func.count(), sa.func.min(oldest.c[column.name]))).one()
    return None if since is None else _cut(number, since, False, most)


def _role_outline(row: NamedRow, cursor: Cursor | None) -> RoleOutline:
    absent_since = row.since if row.state == PresenceState.ABSENT.value else None
    return value_of(RoleOutline, row, absent_since=absent_since, was_seen=row.state is not None, cursor=cursor)


def _oldest(column: sa.Column[Any], *which: sa.ColumnElement[bool]) -> "sa.ScalarSelect[datetime | None]":
    return sa.select(sa.func.min(column)).where(*which).scalar_subquery()


def _roles() -> NamedRows:
    role, delivery, item = model.role.c, model.delivery.c, model.parked_item.c
    return (
        sa.select(
            *(role.id.label("role_id"), role.service_id, model.presence.c.state, model.presence.c.since),
            _oldest(delivery.changed_at, delivery.role_id == role.id, IS_PARKED).label("parked_since"),
            _oldest(item.changed_at, item.role_id == role.id, item.state == ItemState.PARKED.value).label(
                "items_since"
            ),
        )
        .outerjoin(model.presence, model.presence.c.role_id == role.id)
        .where(role.removed_at.is_(None), role.detached_at.is_(None))
    )


def _waiting() -> "sa.Select[str, datetime | None]":
    service, delivery = model.service.c, model.delivery.c
    since = _oldest(delivery.changed_at, delivery.service_id == service.id).label("since")
    return sa.select(service.key, since).where(service.kind == "worker")


_ROLES = _roles()
_WAITING = _waiting()
