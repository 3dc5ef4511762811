"""Envelopes that come again: new rows over the old segments, so that many items cost no more than few."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.audit import Act, note_acts
from xbus.broker.journal.commit.statements.closing import next_positions, receive
from xbus.broker.journal.commit.statements.common import exactly_one, remember
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.log.event_states import RETRIED
from xbus.errors import JournalError
from xbus.states import DELIVERY_MOVES, DeliveryState, EnvelopeState, check_move

_ORIGIN = (
    sa.select(model.envelope)
    .where(
        model.envelope.c.id == bindparam("origin_id"),
        model.envelope.c.state == EnvelopeState.RECEIVED.value,
        model.envelope.c.pruned_at.is_(None),
    )
    # A command in another process may be about to archive it.
    .with_for_update(read=True)
)
_INSERT_ENVELOPE = sa.insert(model.envelope)
_LOGIN = sa.select(model.emitter.c.login).where(model.emitter.c.id == bindparam("of_emitter"))
_INSERT_EVENT = sa.insert(model.event)
_INSERT_ROLE = sa.insert(model.envelope_role)
_DELETE_PARKED = sa.delete(model.delivery).where(
    model.delivery.c.role_id == bindparam("of_role"),
    model.delivery.c.envelope_id == bindparam("of_envelope"),
    model.delivery.c.state == DeliveryState.PARKED.value,
)


def repeat(connection: sa.Connection, group: Sequence[writes.Repeat]) -> list[writes.SealReceipt]:
    origins = [_repeat_open(connection, write) for write in group]
    receipts = []
    for position, write, origin in zip(next_positions(driver_of(connection), len(group)), group, origins, strict=True):
        # What is received has the same content as its origin, so its receipt says the same.
        receipt = writes.SealReceipt(
            write.envelope_id, position, origin["events"], origin["items"], origin["bytes"], bytes(origin["hash"])
        )
        receive(connection, receipt, write.at)
        receipts.append(receipt)
    return receipts


def _repeat_open(connection: sa.Connection, write: writes.Repeat) -> sa.RowMapping:
    """Write an envelope that repeats another, up to its being received; returns the other one."""
    origin = connection.execute(_ORIGIN, {"origin_id": write.origin_id}).mappings().one_or_none()
    if origin is None or origin["events"] != len(write.events):
        raise JournalError(f"envelope {write.origin_id} is not there to come again with {len(write.events)} events")
    envelope = {
        "id": write.envelope_id,
        "emitter_id": origin["emitter_id"],
        "state": EnvelopeState.OPEN,
        "opened_at": write.at,
        "origin_id": write.origin_id,
        **{column.name: origin[column.name] for column in model.REPEATED_HEAD},
    }
    connection.execute(_INSERT_ENVELOPE, envelope)
    if write.events:
        connection.execute(_INSERT_EVENT, [_event_row(write, event) for event in write.events])
    for role_id in write.parked_for or ():
        connection.execute(_INSERT_ROLE, {"envelope_id": write.envelope_id, "role_id": role_id})
        _settle_parked(connection, write, role_id)
    login = connection.execute(_LOGIN, {"of_emitter": origin["emitter_id"]}).scalar_one()
    action = "replayed" if write.parked_for is None else RETRIED
    after = f"envelope {write.envelope_id}"
    # An emitter repeats its own envelopes alone. This locks nothing, so the seal waits for nobody.
    note_acts(connection, [Act(write.at, login, "", action, f"envelope {write.origin_id}", after=after)])
    return origin


def _event_row(write: writes.Repeat, event: writes.RepeatedEvent) -> dict[str, object]:
    return {
        "id": event.event_id,
        "envelope_id": write.envelope_id,
        "number": event.number,
        "event_type_id": event.event_type_id,
        "graph_id": event.graph_id,
        "estimate": event.estimate,
        "items": event.items,
        "origin_id": event.origin_id,
        **event.tags._asdict(),
    }


def _settle_parked(connection: sa.Connection, write: writes.Repeat, role_id: int) -> None:
    check_move(DELIVERY_MOVES, DeliveryState.PARKED, DeliveryState.SETTLED)
    settled = connection.execute(_DELETE_PARKED, {"of_role": role_id, "of_envelope": write.origin_id})
    exactly_one(settled, f"the delivery of {write.origin_id} to role {role_id} is no longer parked")
    subject_id = f"{role_id} {write.origin_id}"
    remember(connection, write.at, "delivery", subject_id, RETRIED, f"comes again as envelope {write.envelope_id}")
