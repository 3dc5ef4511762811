"""Statements for the back's progress: cursors, delivery rows, and failures."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import exactly_one, remember
from xbus.broker.journal.commit.statements.cures import close_delivered
from xbus.broker.journal.commit.statements.deciding import decide
from xbus.broker.journal.commit.statements.rows import Row, update_rows, write_rows
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.writes.fingerprint import fingerprint
from xbus.errors import JournalError
from xbus.states import DELIVERY_MOVES, DeliveryState, ItemState, check_move

_MOVE_CURSORS = update_rows("move_cursors", model.cursor, ["position", "done", "handed_to"], "role_id")
_INSERT_DELIVERY = sa.insert(model.delivery)
_THIS_DELIVERY = (
    model.delivery.c.role_id == bindparam("of_role"),
    model.delivery.c.envelope_id == bindparam("of_envelope"),
    model.delivery.c.state == bindparam("old_state"),
)
_UPDATE_DELIVERY = sa.update(model.delivery).where(*_THIS_DELIVERY)
_DELETE_DELIVERY = sa.delete(model.delivery).where(*_THIS_DELIVERY)
_INSERT_PARKED_ITEM = sa.insert(model.parked_item)
_INSERT_FAILURE = sa.insert(model.failure)


def progress(connection: sa.Connection, group: Sequence[writes.ProgressUpdate]) -> None:
    # Each role's cursor is where the last write has it: those of the writes before are of no use then.
    cursors: dict[int, Row] = {}
    for write in group:
        for cursor in write.cursors:
            cursors[cursor.role_id] = (cursor.position, cursor.bitmap(), cursor.handed_to, cursor.role_id)
    if cursors and write_rows(driver_of(connection), (_MOVE_CURSORS, [*cursors.values()])) != len(cursors):
        raise JournalError(f"one of the roles {', '.join(map(str, cursors))} has no cursor")
    for write in group:
        for move in write.deliveries:
            _move_delivery(connection, write, move)
        if write.failures:
            connection.execute(_INSERT_FAILURE, [_failure_row(write, failure) for failure in write.failures])
        if write.deliveries or write.repeated:
            settled = (move.new for move in write.deliveries if move.new.state is DeliveryState.SETTLED)
            delivered = {*write.repeated, *((row.role_id, row.envelope_id) for row in settled)}
            close_delivered(connection, write.at, delivered)
        if write.decided:
            decide(connection, write.at, write.decided)


def follow_order(connection: sa.Connection, group: Sequence[writes.FollowOrder]) -> None:
    _follow_roles(connection)
    delivery = model.delivery.c
    of_envelope = (
        sa.select(sa.func.coalesce(model.envelope.c.ordering_key, ""))
        .where(model.envelope.c.id == delivery.envelope_id)
        .scalar_subquery()
    )
    for write in group:
        is_ordered = delivery.role_id.in_(write.ordered)
        without_key = sa.update(model.delivery).where(is_ordered, delivery.ordering_key.is_(None))
        connection.execute(without_key.values(ordering_key=of_envelope))
        with_key = sa.update(model.delivery).where(~is_ordered, delivery.ordering_key.is_not(None))
        is_held = delivery.state == DeliveryState.HELD
        state = sa.case((is_held, DeliveryState.RETRY.value), else_=delivery.state)
        connection.execute(with_key.values(ordering_key=None, state=state))


def _follow_roles(connection: sa.Connection) -> None:
    """Begin at the head of the log for consumer roles that somebody inserted by SQL, and end for removed ones."""
    cursor, role, head = model.cursor, model.role, model.head.c.position
    consumers = sa.select(role.c.id).join(model.service).where(model.service.c.kind == "consumer")
    has_cursor = sa.exists().where(cursor.c.role_id == role.c.id)
    new = consumers.where(role.c.removed_at.is_(None), ~has_cursor)
    for role_id in connection.execute(new).scalars().all():
        position = connection.execute(sa.select(head)).scalar_one()
        values = {"from_position": position + 1, "position": position, "handed_to": position, "done": b""}
        connection.execute(sa.insert(cursor).values(role_id=role_id, **values))
    in_use = consumers.where(role.c.removed_at.is_(None), role.c.detached_at.is_(None))
    back = cursor.c.until_position.is_not(None) & cursor.c.role_id.in_(in_use)
    connection.execute(sa.update(cursor).where(back).values(until_position=None))
    gone = cursor.c.until_position.is_(None) & cursor.c.role_id.in_(consumers.where(role.c.removed_at.is_not(None)))
    until = sa.select(head + 1).scalar_subquery()
    connection.execute(sa.update(cursor).where(gone).values(until_position=until))


def _move_delivery(connection: sa.Connection, write: writes.ProgressUpdate, move: writes.DeliveryMove) -> None:
    delivery = move.new
    service_id, cause = _service(connection, delivery)
    values: dict[str, object] = {
        "position": delivery.position,
        "state": delivery.state.value,
        "service_id": service_id,
        "attempts": delivery.attempts,
        "code": delivery.code,
        "cause": cause,
        "ordering_key": delivery.ordering_key,
        "due_at": delivery.due_at,
        "changed_at": write.at,
    }
    key = {"of_role": delivery.role_id, "of_envelope": delivery.envelope_id, "old_state": move.old}
    if move.old is None:
        row = {"role_id": delivery.role_id, "envelope_id": delivery.envelope_id, **values}
        connection.execute(_INSERT_DELIVERY, row)
    else:
        check_move(DELIVERY_MOVES, move.old, delivery.state)
        statement: sa.Update | sa.Delete = (
            _DELETE_DELIVERY if delivery.state is DeliveryState.SETTLED else _UPDATE_DELIVERY.values(values)
        )
        exactly_one(
            connection.execute(statement, key),
            f"the delivery of {delivery.envelope_id} to role {delivery.role_id} is no longer {move.old}",
        )
    subject_id = f"{delivery.role_id} {delivery.envelope_id}"
    if delivery.state is DeliveryState.PARKED:
        remember(connection, write.at, "delivery", subject_id, delivery.state, delivery.cause)
    if move.isolated:
        connection.execute(_INSERT_PARKED_ITEM, [_parked_item_row(write, delivery, item) for item in move.isolated])
        for item in move.isolated:
            item_id = f"{delivery.role_id} {item.event_id} {item.index}"
            remember(connection, write.at, "item", item_id, ItemState.PARKED, item.cause)


def _service(connection: sa.Connection, delivery: writes.DeliveryRow) -> tuple[int | None, str]:
    """Give the id of the service that a delivery waits for, and its cause as people read it.

    The back knows a service by its key, which is an old name of one that was renamed.
    """
    if delivery.service is None:
        return None, delivery.cause
    service = model.service.c
    found = connection.execute(sa.select(service.id, service.name).where(service.key == delivery.service)).one()
    return found.id, delivery.cause.replace(f'"{delivery.service}"', f'"{found.name}"')


def _parked_item_row(
    write: writes.ProgressUpdate, delivery: writes.DeliveryRow, item: writes.IsolatedItem
) -> dict[str, object]:
    return {
        "role_id": delivery.role_id,
        "event_id": item.event_id,
        "item_index": item.index,
        "envelope_id": delivery.envelope_id,
        "state": ItemState.PARKED.value,
        "code": item.code,
        "cause": item.cause,
        "changed_at": write.at,
    }


def _failure_row(write: writes.ProgressUpdate, failure: writes.Failure) -> dict[str, object]:
    return {
        "at": write.at,
        "envelope_id": failure.envelope_id,
        "event_id": failure.event_id,
        "role_id": failure.role_id,
        "node": failure.node,
        "verb": failure.verb,
        "code": failure.code,
        "message": failure.message,
        "indices": failure.indices,
        "fingerprint": fingerprint(failure.role_id, failure.code, failure.message),
    }
