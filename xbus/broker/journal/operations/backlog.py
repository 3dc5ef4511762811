"""Finds and counts the envelopes that consumer roles lack: those whose turn is to come, and those in delivery rows."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import count_listed, find_newest, read_contents_end
from xbus.broker.journal.log.event_states import OWED
from xbus.broker.journal.log.role_progress import MOST_COUNTED, read_owed_ahead
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import DeliveryState

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
    graphs = _graphs_by_service(connection)
    role, service = model.role.c, model.service.c
    roles = sa.select(role.id, role.service_id)
    found = [
        LackingRole(graphs.get(service_id, ()), cursors[each], each in with_rows)
        for each, service_id in connection.execute(roles if role_id is None else roles.where(role.id == role_id))
        if each in cursors
    ]
    if role_id is None:
        without = sa.select(service.id).where(
            service.kind == "consumer", ~sa.exists().where(role.service_id == service.id)
        )
        found += [LackingRole(graphs.get(each, ()), None, False) for each in connection.execute(without).scalars()]
    return found


def _graphs_by_service(connection: sa.Connection) -> dict[int, Sequence[int]]:
    node = model.node.c
    graphs: dict[int, list[int]] = {}
    for service_id, graph_id in connection.execute(sa.select(node.service_id, node.graph_id).distinct()):
        graphs.setdefault(service_id, []).append(graph_id)
    return {**graphs}
