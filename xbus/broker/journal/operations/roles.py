"""The roles for operators: the recipients, their work, and how far they lag behind."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows, grouped, value_of
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.contents import count_listed, find_newest, read_contents_end
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.event_states import OWED
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import MOST_COUNTED, read_owed_ahead
from xbus.broker.journal.writes import PauseEntry, PresenceInstance, PresenceRow, PresenceWork, pause_of_role
from xbus.broker.journal.writes.cursor import Cursor
from xbus.clock import span
from xbus.states import DeliveryState, ItemState, PresenceState

# -- backlog -----------------------------------------------------------------------------------------------------------
# Finds and counts the envelopes that consumer roles lack: those whose turn is to come, and those in delivery rows.

LACKING = frozenset({OWED, *(state.value for state in DeliveryState)})
"""States of an envelope at a role that has not got it yet."""


@dataclass(frozen=True, slots=True)
class LackingRole:
    """A consumer role that lacks envelopes, or a service that never had a role.

    Args:
        graphs: those that lead to its service.
        cursor: None for a service without a role, which lacks all.
        has_rows: whether it has delivery rows.
    """

    graphs: Collection[int]
    cursor: Cursor | None
    has_rows: bool

    def newest(self, connection: sa.Connection, below: int, limit: int, above: int) -> list[int]:
        """Find the newest positions below one and above another that it may lack, newest first."""
        positions = {*islice(self._ahead(connection, below, limit, above), limit)}
        if self.has_rows and self.cursor is not None:
            delivery = model.delivery.c
            rows = (
                sa.select(delivery.position)
                .where(delivery.role_id == self.cursor.role_id, delivery.position < below, delivery.position > above)
                .order_by(delivery.position.desc())
                .limit(limit)
            )
            positions |= set(connection.execute(rows).scalars())
        return sorted(positions, reverse=True)[:limit]

    def _ahead(self, connection: sa.Connection, below: int, limit: int, above: int) -> Iterator[int]:
        """Iterate over positions whose turn is still to come, newest first."""
        lowest = above
        if self.cursor is not None:
            lowest = max(above, self.cursor.position, self.cursor.from_position - 1)
            below = below if self.cursor.until_position is None else min(below, self.cursor.until_position)
        while page := find_newest(connection, self.graphs, below, limit, lowest):
            yield from (position for position in page if self._owes(position))
            below = page[-1]

    def _owes(self, position: int) -> bool:
        return self.cursor is None or (self.cursor.owes(position) and not self.cursor.is_settled(position))


@dataclass(frozen=True, slots=True)
class Ahead:
    """The envelopes whose turn at a role is still to come.

    Args:
        envelopes: how many; above :data:`~xbus.broker.journal.log.role_progress.MOST_COUNTED` an estimate.
        oldest_at: when the oldest of them was received; None without any.
    """

    envelopes: int
    oldest_at: datetime | None


def count_ahead(connection: sa.Connection, cursor: Cursor, service_id: int, head: int) -> Ahead:
    """Count the envelopes whose turn at a role is still to come: many of them by the table of contents.

    Args:
        head: the end of the log.
    """
    owed = read_owed_ahead(connection, cursor, service_id, MOST_COUNTED)
    oldest_at = owed[0][1] if owed else None
    if len(owed) < MOST_COUNTED:
        return Ahead(len(owed), oldest_at)
    graphs = connection.execute(sa.select(model.node.c.graph_id).where(model.node.c.service_id == service_id)).scalars()
    until = head if cursor.until_position is None else min(head, cursor.until_position - 1)
    listed_to = max(cursor.position, min(until, read_contents_end(connection)))
    listed = count_listed(connection, set(graphs), cursor.position, listed_to)
    estimate = listed + until - listed_to - cursor.above.bit_count()
    return Ahead(max(MOST_COUNTED, estimate), oldest_at)


def read_lacking_roles(
    connection: sa.Connection, cursors: dict[int, Cursor], role_id: int | None = None
) -> list[LackingRole]:
    """Read the roles that may lack something: all of them and the services that never had one, or one role."""
    delivery = model.delivery.c
    with_rows = set(connection.execute(sa.select(delivery.role_id).distinct()).scalars())
    node = model.node.c
    graphs = grouped(connection.execute(sa.select(node.service_id, node.graph_id).distinct()))
    role, service = model.role.c, model.service.c
    roles = sa.select(role.id, role.service_id)
    found = [
        LackingRole(graphs[service_id], cursors[each], each in with_rows)
        for each, service_id in connection.execute(roles if role_id is None else roles.where(role.id == role_id))
        if each in cursors
    ]
    if role_id is None:
        without = sa.select(service.id).where(
            service.kind == "consumer", ~sa.exists().where(role.service_id == service.id)
        )
        found += [LackingRole(graphs[each], None, False) for each in connection.execute(without).scalars()]
    return found


COMING = (DeliveryState.WAITING, DeliveryState.RETRY, DeliveryState.HELD)
"""The states of rows whose envelopes come by themselves; parked ones wait for a person."""


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """A role that is in use.

    Args:
        role: its login.
        kind: ``worker`` or ``consumer``.
        state: as it was when the broker last wrote it down.
        since: when it came into that state; None where it was never seen.
        seen_at: when the broker last heard of its recipient; None where it never did.
        noted_at: when the broker wrote that down.
        work: what is being brought to it, a map for each envelope: see ``model.presence``.
        lag: how many envelopes it lacks that arrive by themselves: their turn is to come, or they are in a row that
            waits, is held or retried; above ``MOST_COUNTED`` an estimate. None for a worker, which is owed nothing.
        owed_since: when the oldest envelope was received that it is owed and has not got, apart from parked ones.
        parked: how many envelopes are parked for it.
        parked_items: how many items are parked alone for it.
        instances: the programs that are registered for it; empty for a role that has place for one alone.
        pause: why it gets nothing new; None while it does.
        role_id: the id by which the back knows it.
    """

    role: str
    service: str
    kind: str
    state: PresenceState
    since: datetime | None
    seen_at: datetime | None
    noted_at: datetime | None
    work: Sequence[PresenceWork]
    lag: int | None
    owed_since: datetime | None
    parked: int
    parked_items: int
    instances: Sequence[PresenceInstance] = ()
    pause: PauseEntry | None = None
    role_id: int = field(kw_only=True)

    def owes_too_long(self, owed_days: float, now: datetime) -> bool:
        """Check whether the role is away, and was owed an envelope for more than so many days; 0 for never."""
        is_away = self.state is PresenceState.ABSENT and self.owed_since is not None
        return bool(owed_days and is_away and now - self.owed_since > span(owed_days * 24 * 3600))  # type: ignore[operator]


def read_presence(connection: sa.Connection) -> dict[int, PresenceRow]:
    """Read what the broker wrote down last, by role id."""
    found = connection.execute(sa.select(model.presence))
    return {
        row.role_id: PresenceRow(row.role_id, PresenceState(row.state), row.since, row.seen_at, row.work, row.instances)
        for row in found
    }


def list_roles(connection: sa.Connection, login: str | None = None) -> list[RoleStatus]:
    """List all roles in use, by login.

    Args:
        login: only this one; None for all.
    """
    cursors = read_cursors(connection)
    head = read_head(connection)
    parked = _count_by_role(connection, model.delivery, DeliveryState.PARKED)
    parked_items = _count_by_role(connection, model.parked_item, ItemState.PARKED)
    coming = _count_by_role(connection, model.delivery, *COMING)
    pauses = read_pauses(connection)
    statuses = []
    wanted = _roles() if login is None else _roles().where(model.role.c.login == login)
    for row in connection.execute(wanted).all():
        cursor = cursors.get(row.id)
        ahead = Ahead(0, None) if cursor is None else count_ahead(connection, cursor, row.service_id, head)
        pause = pause_of_role(pauses, row.id, row.service_id)
        status = value_of(
            RoleStatus,
            row,
            role=row.login,
            state=presence_state(row, pause),
            work=row.work or [],
            lag=None if cursor is None else ahead.envelopes + coming.get(row.id, 0),
            owed_since=_oldest(connection, ahead, row.id if row.id in coming else None),
            parked=parked.get(row.id, 0),
            parked_items=parked_items.get(row.id, 0),
            instances=row.instances or (),
            pause=pause,
            role_id=row.id,
        )
        statuses.append(status)
    return statuses


def oldest_owed(connection: sa.Connection, cursor: Cursor | None, service_id: int) -> datetime | None:
    """Find when the oldest envelope was received that a role still lacks; parked ones don't count."""
    if cursor is None:
        return None
    ahead = read_owed_ahead(connection, cursor, service_id, 1)
    return _oldest(connection, Ahead(len(ahead), ahead[0][1] if ahead else None), cursor.role_id)


def _oldest(connection: sa.Connection, ahead: Ahead, role_id: int | None) -> datetime | None:
    """Find the older of two: the first envelope ahead of a role, and its first with a row.

    Args:
        role_id: the role, if it may have rows whose envelopes come by themselves.
    """
    if role_id is None:
        return ahead.oldest_at
    envelope, delivery = model.envelope.c, model.delivery.c
    in_rows = (
        sa.select(envelope.closed_at)
        .join(model.delivery, delivery.envelope_id == envelope.id)
        .where(delivery.role_id == role_id, delivery.state.in_(COMING))
        .order_by(delivery.position)
        .limit(1)
    )
    found = [*connection.execute(in_rows).scalars(), *([] if ahead.oldest_at is None else [ahead.oldest_at])]
    return min(found, default=None)


def _roles() -> NamedRows:
    role, service, presence = model.role.c, model.service.c, model.presence.c
    return (
        sa.select(
            *(role.id, role.login, role.service_id, role.detached_at),
            *(service.name.label("service"), service.kind),
            *(presence.state, presence.since, presence.seen_at, presence.work, presence.instances, presence.noted_at),
        )
        .join(model.service, service.id == role.service_id)
        .outerjoin(model.presence, presence.role_id == role.id)
        .where(role.removed_at.is_(None))
        .order_by(role.login)
    )


def presence_state(row: NamedRow, pause: PauseEntry | None) -> PresenceState:
    """Give the state of a role with its ``detached_at``, whatever is written down of its recipient in ``state``."""
    if row.detached_at is not None:
        return PresenceState.DETACHED
    if pause is not None:
        return PresenceState.PAUSED
    is_old = row.state in (None, PresenceState.DETACHED, PresenceState.PAUSED)
    return PresenceState.ABSENT if is_old else PresenceState(row.state)


def _count_by_role(connection: sa.Connection, table: sa.Table, *states: DeliveryState | ItemState) -> dict[int, int]:
    """Count for each role its rows of a table in some states; roles without any are left out."""
    role_id = table.c.role_id
    statement = sa.select(role_id, sa.func.count()).where(table.c.state.in_(states)).group_by(role_id)
    return dict(connection.execute(statement).all())
