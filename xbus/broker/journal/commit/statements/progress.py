"""Statements for the back's progress: cursors, delivery rows, and failures."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import exactly_one, remember
from xbus.broker.journal.commit.statements.rows import Row, update_rows, write_rows
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.database.rows import columns_of
from xbus.broker.journal.log.contents import note_graphs
from xbus.broker.journal.writes.fingerprint import fingerprint
from xbus.errors import JournalError
from xbus.states import DELIVERY_MOVES, DeliveryState, ItemState, TrackingState, check_move

# -- deciding ----------------------------------------------------------------------------------------------------------
# Statements for decisions of administrators about owed envelopes, as far as the back has carried them out.

_REGRAPH = sa.update(model.event).where(model.event.c.id == bindparam("of_event")).values(graph_id=bindparam("takes"))
_INSERT_HISTORY = sa.insert(model.history)
_THIS_DECISION = model.decision.c.id == bindparam("of_decision")
_GO_ON = sa.update(model.decision).where(_THIS_DECISION).values(position=bindparam("dealt_with"))
_END = sa.delete(model.decision).where(_THIS_DECISION)


def decide(connection: sa.Connection, at: datetime, steps: Sequence[writes.Decided]) -> None:
    """Write down the steps, in the transaction of the cursors and rows that they moved."""
    for step in steps:
        if step.regraphed:
            connection.execute(_REGRAPH, [{"of_event": event_id, "takes": takes} for event_id, takes in step.regraphed])
            note_graphs(connection, step.regraphed)
        if step.let_go:
            history = [
                {"subject_id": f"{role_id} {envelope_id}", "move": move, "reason": reason}
                for role_id, envelope_id, move, reason in step.let_go
            ]
            connection.execute(_INSERT_HISTORY, [{"at": at, "subject": "delivery", **row} for row in history])
        if step.is_done:
            connection.execute(_END, {"of_decision": step.decision_id})
        else:
            connection.execute(_GO_ON, {"of_decision": step.decision_id, "dealt_with": step.position})


# -- cures -------------------------------------------------------------------------------------------------------------
# Statements that close cured failures: the envelope has reached its role, or a person corrected the failed items.

ENVELOPES = 200
"""Envelopes whose failures are read at once. More take fewer statements, and more memory where failures are many."""

_OPEN_STATES = [TrackingState.UNPROCESSED.value, TrackingState.PROCESSING.value, TrackingState.ON_HOLD.value]

_FAILURE = model.failure.c

_OPEN_FAILURES = (
    sa.select(_FAILURE.id, _FAILURE.envelope_id, _FAILURE.event_id, _FAILURE.role_id, _FAILURE.indices)
    .add_columns((model.service.c.kind == "consumer").label("is_consumers"))
    .outerjoin_from(model.failure, model.role, model.role.c.id == _FAILURE.role_id)
    .outerjoin(model.service, model.service.c.id == model.role.c.service_id)
    .where(_FAILURE.tracking.in_(_OPEN_STATES))
    .order_by(_FAILURE.id)
)


def close_delivered(connection: sa.Connection, at: datetime, delivered: Collection[tuple[int, UUID]]) -> None:
    """Close the failures of deliveries that went well in the end, and of what the delivered envelopes repeat.

    A failure of a worker is closed with the last delivery of its envelope. A failure stays open that names an item
    which is still parked alone, or whose own envelope is still owed to the role, though a repeat of it was delivered.

    Args:
        delivered: role and envelope of each delivery whose row is settled, or which is a repeat.
    """
    for ids in portions(sorted({envelope_id for _, envelope_id in delivered}), ENVELOPES):
        repeats = _read_repeats(connection, ids)
        known = [*repeats]
        failures = connection.execute(_OPEN_FAILURES.where(_FAILURE.envelope_id.in_(known))).all()
        if not failures:
            continue
        delivery, item = model.delivery.c, model.parked_item.c
        owed = sa.select(delivery.role_id, delivery.envelope_id).where(delivery.envelope_id.in_(known))
        lacking = {(role_id, envelope_id) for role_id, envelope_id in connection.execute(owed)}
        lacked = {envelope_id for _, envelope_id in lacking}
        is_parked = sa.and_(item.envelope_id.in_(known), item.state == ItemState.PARKED.value)
        parked = connection.execute(sa.select(item.event_id, item.item_index).where(is_parked))
        kept = {(event_id, index) for event_id, index in parked}
        cured = [
            failure.id
            for failure in failures
            if (
                any((failure.role_id, each) in delivered for each in repeats[failure.envelope_id])
                and (failure.role_id, failure.envelope_id) not in lacking
                if failure.is_consumers
                else lacked.isdisjoint({failure.envelope_id, *repeats[failure.envelope_id]})
            )
            and not any((failure.event_id, index) in kept for index in failure.indices or ())
        ]
        _close(connection, at, cured, "closed by the broker: the envelope was delivered")


def _read_repeats(connection: sa.Connection, ids: Sequence[UUID]) -> dict[UUID, set[UUID]]:
    """Map each of some envelopes to itself, and each envelope that one of them repeats to those that repeat it."""
    envelope = model.envelope.c
    repeats = {each: {each} for each in ids}
    ahead: Sequence[UUID] = ids
    while ahead:
        is_repeat = sa.and_(envelope.id.in_(ahead), envelope.origin_id.is_not(None))
        ahead = []
        for repeat_id, origin_id in connection.execute(sa.select(envelope.id, envelope.origin_id).where(is_repeat)):
            repeats.setdefault(origin_id, set()).update(repeats[repeat_id])
            ahead.append(origin_id)
    return repeats


def close_corrected(
    connection: sa.Connection, at: datetime, event_id: UUID, role_id: int | None, corrected: Collection[int]
) -> None:
    """Close the failures that name corrected items alone.

    Args:
        event_id: as of ``model.correction``.
        role_id: the role that gets the items so; None for all.
        corrected: the indices of all corrected items of the event.
    """
    event = model.event.c
    events = sa.select(event.id).where(sa.or_(event.id == event_id, event.origin_id == event_id))
    failures = _OPEN_FAILURES.where(_FAILURE.event_id == event_id if role_id else _FAILURE.event_id.in_(events))
    cured = [
        failure.id
        for failure in connection.execute(failures)
        if failure.indices
        and set(failure.indices) <= set(corrected)
        and (role_id in (None, failure.role_id) or not failure.is_consumers)
    ]
    _close(connection, at, cured, "closed by the broker: its items were corrected")


def _close(connection: sa.Connection, at: datetime, failure_ids: Sequence[int], reason: str) -> None:
    for ids in portions(failure_ids, ENVELOPES):
        closing = sa.update(model.failure).where(_FAILURE.id.in_(ids))
        connection.execute(closing.values(tracking=TrackingState.CORRECTED.value))
    for failure_id in failure_ids:
        remember(connection, at, "failure", str(failure_id), TrackingState.CORRECTED, reason)


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
    values = columns_of(delivery, "role_id", "envelope_id", "service")
    values |= {"state": delivery.state.value, "service_id": service_id, "cause": cause, "changed_at": write.at}
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
    own = {"at": write.at, "fingerprint": fingerprint(failure.role_id, failure.code, failure.message)}
    return columns_of(failure) | own
