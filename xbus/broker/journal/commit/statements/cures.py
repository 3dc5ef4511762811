"""Statements that close cured failures: the envelope has reached its role, or a person corrected the failed items."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.paging import portions
from xbus.states import ItemState, TrackingState

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
