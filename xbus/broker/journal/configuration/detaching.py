"""Taking a consumer role off the bus, so that nothing waits for it any more, and putting it on again."""

from dataclasses import dataclass
from datetime import datetime
from shlex import quote

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import count_owed
from xbus.broker.journal.operations.roles import oldest_owed
from xbus.broker.journal.writes import pause_of_role
from xbus.broker.journal.writes.cursor import Cursor
from xbus.errors import Refused
from xbus.states import ItemState, PresenceState

SUBJECT = "role"
"""The name of moves of a role in the history."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The envelopes that a role would miss if it was detached now.

    Args:
        envelopes: how many it has not got, up to ``MOST_COUNTED``; those in rows of their own are among them.
        since: when the oldest of those was received that come by themselves.
        position: all up to here is settled for it.
        head: the end of the log.
        rows: how many have a row of their own, by the state of the row.
    """

    role: str
    envelopes: int
    since: datetime | None
    position: int
    head: int
    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Role:
    id: int
    login: str
    service_id: int
    detached: bool
    cursor: Cursor


def outlook(connection: sa.Connection, login: str) -> Outlook:
    """Preview what a role would miss.

    Raises:
        Refused: no consumer role has this login, it is detached already, or a recipient serves it now.
    """
    role = _attached(connection, login)
    rows = connection.execute(
        sa.select(model.delivery.c.state, sa.func.count())
        .where(model.delivery.c.role_id == role.id)
        .group_by(model.delivery.c.state)
    )
    return Outlook(
        login,
        count_owed(connection, login),
        oldest_owed(connection, role.cursor, role.service_id),
        role.cursor.position,
        read_head(connection),
        dict(rows.all()),
    )


def detach(connection: sa.Connection, login: str, reason: str, at: datetime) -> None:
    """Have a role be owed nothing from now on; it never gets the envelopes that it lacks now.

    Raises:
        Refused: see ``outlook``.
    """
    role = _attached(connection, login)
    act = act_here(at, "detached", f'role "{login}"', before=f"position {role.cursor.position}", reason=reason)
    with new_version(connection, "detached", f"role {login}: {reason}", at, acts=[act]):
        connection.execute(sa.update(model.role).where(model.role.c.id == role.id).values(detached_at=at))
    position = role.cursor.position
    connection.execute(_cursor_of(role).values(until_position=position + 1, handed_to=position, done=b""))
    _drop_rows(connection, role, reason, at)
    remember(connection, at, SUBJECT, login, "detached", reason)


def attach(connection: sa.Connection, login: str, at: datetime) -> int:
    """Have a role be owed again everything that is received from now on.

    Returns:
        The first position that it is owed.

    Raises:
        Refused: no consumer role has this login, or it is not detached.
    """
    role = _role(connection, login)
    if not role.detached:
        raise Refused(f'the role "{login}" is not detached', "see xbus recipient list", code="role_attached")
    head = read_head(connection)
    act = act_here(at, "attached", f'role "{login}"', after=f"owed from position {head + 1} on")
    with new_version(connection, "attached", f"role {login}", at, acts=[act]):
        connection.execute(sa.update(model.role).where(model.role.c.id == role.id).values(detached_at=None))
    values = {"from_position": head + 1, "until_position": None, "position": head, "handed_to": head, "done": b""}
    connection.execute(_cursor_of(role).values(values))
    remember(connection, at, SUBJECT, login, "attached", f"owed from position {head + 1} on")
    return head + 1


def _role(connection: sa.Connection, login: str) -> _Role:
    row = connection.execute(
        sa.select(model.role).where(model.role.c.login == login, model.role.c.removed_at.is_(None))
    ).one_or_none()
    cursor = None if row is None else read_cursors(connection).get(row.id)
    if row is None or cursor is None:
        raise Refused(
            f'there is no consumer role "{login}"', "xbus recipient list shows the roles", code="unknown_login"
        )
    return _Role(row.id, login, row.service_id, row.detached_at is not None, cursor)


def _attached(connection: sa.Connection, login: str) -> _Role:
    role = _role(connection, login)
    if role.detached:
        raise Refused(
            f'the role "{login}" is detached already', "xbus recipient attach undoes it", code="role_detached"
        )
    if _is_own(connection, role) and not _is_paused(connection, role):
        raise Refused(
            f'the bus itself serves the role "{login}", of a node that emits',
            f"pause it first, and wait until it has nothing under way: xbus pause role {quote(login)}",
            code="role_served",
        )
    if _is_served(connection, role):
        raise Refused(
            f'a recipient serves the role "{login}"',
            "stop it first; if it has gone, start the broker, which will notice",
            code="role_served",
        )
    return role


def _is_own(connection: sa.Connection, role: _Role) -> bool:
    """Check whether the bus itself serves a role."""
    own = sa.select(model.emitting_service.c.service_id).where(model.emitting_service.c.service_id == role.service_id)
    return connection.execute(own).first() is not None


def _is_paused(connection: sa.Connection, role: _Role) -> bool:
    return pause_of_role(read_pauses(connection), role.id, role.service_id) is not None


def _is_served(connection: sa.Connection, role: _Role) -> bool:
    """Check whether a recipient is registered, and the broker has not seen it go since."""
    registered_at = connection.execute(
        sa.select(sa.func.max(model.registration.c.registered_at)).where(
            model.registration.c.role_id == role.id, model.registration.c["metadata"].is_not(None)
        )
    ).scalar_one()
    if registered_at is None:
        return False
    left = sa.select(model.presence.c.noted_at).where(
        model.presence.c.role_id == role.id, model.presence.c.state == PresenceState.ABSENT
    )
    left_at = connection.execute(left).scalar_one_or_none()
    return left_at is None or left_at < registered_at


def _drop_rows(connection: sa.Connection, role: _Role, reason: str, at: datetime) -> None:
    of_role = model.delivery.c.role_id == role.id
    for envelope_id in connection.execute(sa.select(model.delivery.c.envelope_id).where(of_role)).scalars().all():
        remember(connection, at, "delivery", f"{role.id} {envelope_id}", "dropped", f"detached: {reason}")
    connection.execute(sa.delete(model.delivery).where(of_role))
    parked = model.parked_item.c
    items = (parked.role_id == role.id) & (parked.state == ItemState.PARKED)
    for event_id, index in connection.execute(sa.select(parked.event_id, parked.item_index).where(items)).all():
        remember(connection, at, "item", f"{role.id} {event_id} {index}", "dropped", f"detached: {reason}")
    connection.execute(sa.update(model.parked_item).where(items).values(state=ItemState.DROPPED.value, changed_at=at))


def _cursor_of(role: _Role) -> sa.Update:
    """Make an update of a cursor."""
    return sa.update(model.cursor).where(model.cursor.c.role_id == role.id)
