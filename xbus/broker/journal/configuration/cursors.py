"""Places the cursor of a consumer role: at its start in the log, and when it goes and comes back."""

from sqlalchemy import ColumnElement, Connection, case, insert, select, update

from xbus.broker.journal.configuration.entries import Start
from xbus.broker.journal.log.reading import is_kept, read_head
from xbus.model import cursor, envelope, role


def start_cursor(connection: Connection, role_id: int, start: Start | None = None) -> None:
    """Give a consumer role its place in the log.

    Unless ``start`` says otherwise the first role that its service ever had starts with all that waits for the service;
    further ones start at the head. A role that comes back goes on where it stood, as if it had only been absent: so
    applying an old file again undoes a removal made by mistake, and nothing that it was owed is lost. One that was
    detached stays so.
    """
    is_detached = select(role.c.detached_at.is_not(None)).where(role.c.id == role_id).scalar_subquery()
    until_position = case((is_detached, cursor.c.until_position), else_=None)
    returned = connection.execute(
        update(cursor).where(cursor.c.role_id == role_id).values(until_position=until_position)
    )
    if returned.rowcount == 0:
        position = _position_before(connection, role_id, start)
        connection.execute(
            insert(cursor).values(
                role_id=role_id, from_position=position + 1, position=position, handed_to=position, done=b""
            )
        )


def end_cursor(connection: Connection, role_id: int) -> None:
    """End what a removed role is owed at the present head; a worker role has no cursor and stays."""
    # One that was detached is owed less already.
    of_role = (cursor.c.role_id == role_id) & cursor.c.until_position.is_(None)
    connection.execute(update(cursor).where(of_role).values(until_position=read_head(connection) + 1))


def _has_predecessor(connection: Connection, role_id: int) -> bool:
    service_id = select(role.c.service_id).where(role.c.id == role_id).scalar_subquery()
    others = select(cursor.c.role_id).join(role, role.c.id == cursor.c.role_id).where(role.c.service_id == service_id)
    return connection.execute(others.limit(1)).first() is not None


def _position_before(connection: Connection, role_id: int, start: Start | None) -> int:
    """Find the last position that a new role is not owed."""
    if start is None:
        return read_head(connection) if _has_predecessor(connection, role_id) else 0
    return position_before(connection, start)


def position_before(connection: Connection, start: Start) -> int:
    """Find the last position before a start."""
    match start:
        case "head":
            return read_head(connection)
        case "oldest":
            return _before_first(connection, is_kept())
        case int():
            return min(start - 1, read_head(connection))
        case _:
            return _before_first(connection, envelope.c.closed_at >= start)


def _before_first(connection: Connection, which: ColumnElement[bool]) -> int:
    """Find the position before the first received envelope of some; the head if none is received."""
    first = select(envelope.c.position).where(envelope.c.position.is_not(None), which)
    position = connection.execute(first.order_by(envelope.c.position).limit(1)).scalar_one_or_none()
    return read_head(connection) if position is None else position - 1
