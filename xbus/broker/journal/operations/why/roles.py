"""The facts of a role: its situation, and how much it lacks, each counted up to a bound."""

from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.role_progress import read_owed_ahead
from xbus.broker.journal.operations.roles import COMING
from xbus.broker.journal.operations.stalled import (
    MOST_COUNTED,
    MOST_ROWS,
    Stalled,
    add_up,
    count_owed_rows,
    count_parked,
    count_parked_items,
    count_waiting,
)
from xbus.broker.journal.operations.why.situations import RoleSituation, read_situation
from xbus.broker.journal.writes.cursor import Cursor


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """The facts of a role.

    Args:
        role: its situation.
        lacking: the envelopes that it lacks and that arrive by themselves; None without any, and for a worker.
        oldest: the oldest of them.
        parked: the envelopes that are parked for it.
        parked_items: the items that are parked alone for it.
        waiting: the envelopes that wait for its service, if it is a worker.
    """

    role: RoleSituation
    lacking: Stalled | None
    oldest: UUID | None
    parked: Stalled | None
    parked_items: Stalled | None
    waiting: Stalled | None


def read_role_facts(connection: sa.Connection, login: str) -> RoleFacts | None:
    """Read the facts of a role, also of a removed one; None if no role has or had this login."""
    role = read_situation(connection, login, read_pauses(connection))
    if role is None:
        return None
    cursor = read_cursors(connection).get(role.id)
    ahead, oldest = (None, None) if cursor is None else _ahead(connection, cursor, role.service_id)
    return RoleFacts(
        role,
        add_up([count_owed_rows(connection, role.id), ahead]),
        _oldest(connection, role.id, oldest),
        count_parked(connection, role.id),
        count_parked_items(connection, role.id),
        _waiting(connection, role),
    )


def _ahead(connection: sa.Connection, cursor: Cursor, service_id: int) -> tuple[Stalled | None, int | None]:
    """Count the envelopes whose turn is to come, and give the position of the first."""
    owed = read_owed_ahead(connection, cursor, service_id, MOST_COUNTED + 1)
    if not owed:
        return None, None
    (position, since), is_cut = owed[0], len(owed) > MOST_COUNTED
    return Stalled(min(len(owed), MOST_COUNTED), since, is_cut), position


def _oldest(connection: sa.Connection, role_id: int, ahead: int | None) -> UUID | None:
    """Find the envelope with the lowest position that a role lacks and that arrives by itself.

    Of its rows the first are looked at, as others of them may be parked.
    """
    delivery, envelope = model.delivery.c, model.envelope.c
    first = (
        sa.select(delivery.position, delivery.state)
        .where(delivery.role_id == role_id)
        .order_by(delivery.position)
        .limit(MOST_ROWS)
        .subquery()
    )
    in_rows = sa.select(first.c.position).where(first.c.state.in_(COMING)).order_by(first.c.position).limit(1)
    positions = [*connection.execute(in_rows).scalars(), *([] if ahead is None else [ahead])]
    if not positions:
        return None
    found = sa.select(envelope.id).where(envelope.position == min(positions))
    envelope_id: UUID = connection.execute(found).scalar_one()
    return envelope_id


def _waiting(connection: sa.Connection, role: RoleSituation) -> Stalled | None:
    if not role.is_worker:
        return None
    key = sa.select(model.service.c.key).where(model.service.c.id == role.service_id)
    return count_waiting(connection, connection.execute(key).scalar_one())
