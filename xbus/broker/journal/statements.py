"""How each write is carried out. All that changes the journal stands here."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.segments import COPY_COLUMNS, SegmentRow, content_hash, copy_binary, gather
from xbus.errors import JournalError
from xbus.states import DELIVERY_MOVES, ENVELOPE_MOVES, DeliveryState, EnvelopeState, check_move, predecessors

COPY_CHUNK_BYTES = 1024 * 1024


def carry_out(connection: sa.Connection, group: Sequence[writes.Write], max_segment_bytes: int) -> list[Any]:
    """Write a group of calls in the caller's transaction.

    The group is carried out kind by kind, not call by call: an envelope's calls come in the order of ``KINDS`` anyway,
    and one statement then serves many calls.

    Args:
        connection: in a transaction that the caller commits or rolls back.
        group: in the order in which the calls came.
        max_segment_bytes: gathered segments are not made larger than this.

    Returns:
        An answer for each call, in the same order: a ``Receipt`` for a seal, else None.

    Raises:
        JournalError: one of the calls can't be carried out; nothing of the group may be committed.
    """
    answers: list[Any] = [None] * len(group)
    places: dict[type, list[int]] = {}
    for place, write in enumerate(group):
        places.setdefault(type(write), []).append(place)
    for kind in KINDS:
        if kind is writes.Append and kind in places:
            appends = cast(list[writes.Append], [group[place] for place in places[kind]])
            _insert_segments(connection, gather(appends, max_segment_bytes))
        elif kind in places:
            made = _HANDLERS[kind](connection, [group[place] for place in places[kind]])
            for place, answer in zip(places[kind], made or (), strict=False):
                answers[place] = answer
    return answers


# -- emitters' calls -------------------------------------------------------------------------------------------------

_INSERT_ENVELOPE = sa.insert(model.envelope)
_INSERT_EVENT = sa.insert(model.event)
_INSERT_SEGMENT = sa.insert(model.segment)
_COPY_SEGMENT = f"COPY segment ({', '.join(COPY_COLUMNS)}) FROM STDIN (FORMAT binary)"
_END_EVENT = (
    sa.update(model.event)
    .where(model.event.c.id == bindparam("event_id"), model.event.c["items"].is_(None))
    .values(items=bindparam("item_count"))
)


def _start_envelopes(connection: sa.Connection, group: Sequence[writes.StartEnvelope]) -> None:
    connection.execute(
        _INSERT_ENVELOPE,
        [
            {
                "id": write.envelope_id,
                "emitter_id": write.emitter_id,
                "state": EnvelopeState.OPEN,
                "opened_at": write.at,
            }
            for write in group
        ],
    )


def _start_events(connection: sa.Connection, group: Sequence[writes.StartEvent]) -> None:
    connection.execute(
        _INSERT_EVENT,
        [
            {
                "id": write.event_id,
                "envelope_id": write.envelope_id,
                "number": write.number,
                "event_type_id": write.event_type_id,
                "graph_id": write.graph_id,
                "estimate": write.estimate,
            }
            for write in group
        ],
    )


def _insert_segments(connection: sa.Connection, rows: Sequence[SegmentRow]) -> None:
    if connection.dialect.name == "postgresql":
        with cast(_CopyCursor, connection.connection.cursor()) as cursor:
            cursor.copy_expert(_COPY_SEGMENT, io.BytesIO(copy_binary(rows)), COPY_CHUNK_BYTES)
        return
    connection.execute(
        _INSERT_SEGMENT,
        [
            {
                "event_id": row.event_id,
                "first_index": row.first_index,
                "items": row.items,
                "data": row.data,
                "hash": row.hash,
                "indices": row.indices,
            }
            for row in rows
        ],
    )


class _CopyCursor(Protocol):
    """What psycopg2's cursor has beyond the DB API."""

    def __enter__(self) -> "_CopyCursor": ...
    def __exit__(self, *exception: object) -> None: ...
    def copy_expert(self, sql: str, file: io.BytesIO, size: int) -> None: ...


def _end_events(connection: sa.Connection, group: Sequence[writes.EndEvent]) -> None:
    for write in group:
        _exactly_one(
            connection.execute(_END_EVENT, {"event_id": write.event_id, "item_count": write.items}),
            f"event {write.event_id} is not there to be ended",
        )


# -- the end of an envelope ------------------------------------------------------------------------------------------

_MOVE_HEAD = (
    sa.update(model.head).values(position=model.head.c.position + bindparam("sealed")).returning(model.head.c.position)
)
_CONTENT = (
    sa.select(
        model.event.c.envelope_id,
        model.event.c.id,
        model.event_type.c.name,
        model.event.c["items"],
        model.segment.c.hash,
        model.segment.c["items"].label("segment_items"),
        sa.func.length(model.segment.c.data).label("segment_bytes"),
    )
    .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
    .outerjoin(model.segment, model.segment.c.event_id == model.event.c.id)
    .where(model.event.c.envelope_id.in_(bindparam("envelope_ids", expanding=True)))
    .order_by(model.event.c.envelope_id, model.event.c.number, model.segment.c.first_index)
)
_CLOSE_ENVELOPE = sa.update(model.envelope).where(
    model.envelope.c.id == bindparam("envelope_id"),
    model.envelope.c.state.in_(bindparam("from_states", expanding=True)),
)
_SEAL_ENVELOPE = _CLOSE_ENVELOPE.values(
    state=EnvelopeState.RECEIVED.value,
    closed_at=bindparam("at"),
    position=bindparam("new_position"),
    events=bindparam("event_count"),
    items=bindparam("item_count"),
    bytes=bindparam("byte_count"),
    hash=bindparam("content"),
)
_CANCEL_ENVELOPE = _CLOSE_ENVELOPE.values(state=EnvelopeState.CANCELLED.value, closed_at=bindparam("at"))
_INSERT_HISTORY = sa.insert(model.history)


@dataclass(slots=True)
class _EventContent:
    type_name: str
    items: int
    hashes: list[bytes] = field(default_factory=list)
    stored_items: int = 0
    data_bytes: int = 0


def _read_contents(connection: sa.Connection, envelope_ids: list[UUID]) -> dict[UUID, dict[UUID, _EventContent]]:
    contents: dict[UUID, dict[UUID, _EventContent]] = {envelope_id: {} for envelope_id in envelope_ids}
    for row in connection.execute(_CONTENT, {"envelope_ids": envelope_ids}):
        envelope_id, event_id, type_name, items, segment_hash, segment_items, segment_bytes = row
        if items is None:
            raise JournalError(f"event {event_id} is still open")
        event = contents[envelope_id].setdefault(event_id, _EventContent(type_name, items))
        if segment_hash is not None:
            event.hashes.append(segment_hash)
            event.stored_items += segment_items
            event.data_bytes += segment_bytes
    return contents


def _seal(connection: sa.Connection, group: Sequence[writes.Seal]) -> list[writes.Receipt]:
    contents = _read_contents(connection, [write.envelope_id for write in group])
    last = connection.execute(_MOVE_HEAD, {"sealed": len(group)}).scalar_one()
    return [
        _seal_one(connection, write, position, contents[write.envelope_id])
        for position, write in enumerate(group, start=last - len(group) + 1)
    ]


def _seal_one(
    connection: sa.Connection, write: writes.Seal, position: int, content: dict[UUID, _EventContent]
) -> writes.Receipt:
    events = list(content.values())
    for event_id, event in content.items():
        if event.stored_items != event.items:
            raise JournalError(f"event {event_id} ended with {event.items} items and holds {event.stored_items}")
    receipt = writes.Receipt(
        write.envelope_id,
        position,
        len(events),
        sum(event.items for event in events),
        sum(event.data_bytes for event in events),
        content_hash(events),
    )
    values = {
        "new_position": position,
        "event_count": receipt.events,
        "item_count": receipt.items,
        "byte_count": receipt.data_bytes,
        "content": receipt.hash,
    }
    _close_envelope(connection, _SEAL_ENVELOPE, write, EnvelopeState.RECEIVED, values)
    return receipt


def _cancel(connection: sa.Connection, group: Sequence[writes.Cancel]) -> None:
    for write in group:
        _close_envelope(connection, _CANCEL_ENVELOPE, write, EnvelopeState.CANCELLED, {})
        _remember(connection, write, "envelope", str(write.envelope_id), EnvelopeState.CANCELLED, write.reason)


def _close_envelope(
    connection: sa.Connection,
    statement: sa.Update,
    write: writes.Seal | writes.Cancel,
    state: EnvelopeState,
    values: dict[str, Any],
) -> None:
    from_states = [old.value for old in predecessors(ENVELOPE_MOVES, state)]
    values |= {"envelope_id": write.envelope_id, "from_states": from_states, "at": write.at}
    _exactly_one(connection.execute(statement, values), f"envelope {write.envelope_id} is not there to be {state}")


class _Dated(Protocol):
    @property
    def at(self) -> Any: ...


def _remember(connection: sa.Connection, write: _Dated, subject: str, subject_id: str, move: str, reason: str) -> None:
    row = {"at": write.at, "subject": subject, "subject_id": subject_id, "move": move, "reason": reason}
    connection.execute(_INSERT_HISTORY, row)


# -- sessions and registrations --------------------------------------------------------------------------------------

_INSERT_SESSION = sa.insert(model.session)
_RENEW_SESSION = (
    sa.update(model.session)
    .where(model.session.c.token_hash == bindparam("session_hash"))
    .values(expires_at=bindparam("new_expiry"))
)
_END_SESSION = sa.delete(model.session).where(model.session.c.token_hash == bindparam("session_hash"))
_DELETE_REGISTRATION = sa.delete(model.registration).where(model.registration.c.role_id == bindparam("of_role"))
_INSERT_REGISTRATION = sa.insert(model.registration)


def _start_sessions(connection: sa.Connection, group: Sequence[writes.StartSession]) -> None:
    connection.execute(
        _INSERT_SESSION,
        [
            {
                "token_hash": write.token_hash,
                "emitter_id": write.emitter_id,
                "role_id": write.role_id,
                "expires_at": write.expires_at,
            }
            for write in group
        ],
    )


def _renew_sessions(connection: sa.Connection, group: Sequence[writes.RenewSessions]) -> None:
    for write in group:
        for token_hash, expires_at in write.expiries:
            connection.execute(_RENEW_SESSION, {"session_hash": token_hash, "new_expiry": expires_at})


def _end_sessions(connection: sa.Connection, group: Sequence[writes.EndSession]) -> None:
    for write in group:
        connection.execute(_END_SESSION, {"session_hash": write.token_hash})


def _store_passwords(connection: sa.Connection, group: Sequence[writes.StorePassword]) -> None:
    for write in group:
        table = model.role if write.emitter_id is None else model.emitter
        owner = write.role_id if write.emitter_id is None else write.emitter_id
        connection.execute(sa.update(table).where(table.c.id == owner).values(password_hash=write.password_hash))


def _register(connection: sa.Connection, group: Sequence[writes.Register]) -> None:
    for write in group:
        connection.execute(_DELETE_REGISTRATION, {"of_role": write.role_id})
        row = {
            "role_id": write.role_id,
            "token_hash": write.token_hash,
            "uri": write.uri,
            "registered_at": write.at,
        }
        connection.execute(_INSERT_REGISTRATION, row)


def _unregister(connection: sa.Connection, group: Sequence[writes.Unregister]) -> None:
    for write in group:
        connection.execute(_DELETE_REGISTRATION, {"of_role": write.role_id})


# -- the back's progress ---------------------------------------------------------------------------------------------

_MOVE_CURSOR = (
    sa.update(model.cursor)
    .where(model.cursor.c.role_id == bindparam("of_role"))
    .values(position=bindparam("new_position"), done=bindparam("bitmap"), handed_to=bindparam("new_handed_to"))
)
_INSERT_DELIVERY = sa.insert(model.delivery)
_THIS_DELIVERY = (
    model.delivery.c.role_id == bindparam("of_role"),
    model.delivery.c.envelope_id == bindparam("of_envelope"),
    model.delivery.c.state == bindparam("old_state"),
)
_UPDATE_DELIVERY = sa.update(model.delivery).where(*_THIS_DELIVERY)
_DELETE_DELIVERY = sa.delete(model.delivery).where(*_THIS_DELIVERY)
_INSERT_FAILURE = sa.insert(model.failure)


def _progress(connection: sa.Connection, group: Sequence[writes.Progress]) -> None:
    for write in group:
        for cursor in write.cursors:
            values = {
                "of_role": cursor.role_id,
                "new_position": cursor.position,
                "bitmap": cursor.bitmap(),
                "new_handed_to": cursor.handed_to,
            }
            _exactly_one(connection.execute(_MOVE_CURSOR, values), f"role {cursor.role_id} has no cursor")
        for move in write.deliveries:
            _move_delivery(connection, write, move)
        if write.failures:
            connection.execute(_INSERT_FAILURE, [_failure_row(write, failure) for failure in write.failures])


def _move_delivery(connection: sa.Connection, write: writes.Progress, move: writes.DeliveryMove) -> None:
    delivery = move.new
    values = {
        "position": delivery.position,
        "state": delivery.state.value,
        "service_id": _service_id(connection, delivery.service),
        "attempts": delivery.attempts,
        "code": delivery.code,
        "cause": delivery.cause,
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
        _exactly_one(
            connection.execute(statement, key),
            f"the delivery of {delivery.envelope_id} to role {delivery.role_id} is no longer {move.old}",
        )
    if delivery.state is DeliveryState.PARKED:
        subject_id = f"{delivery.role_id} {delivery.envelope_id}"
        _remember(connection, write, "delivery", subject_id, delivery.state, delivery.cause)


def _service_id(connection: sa.Connection, name: str | None) -> int | None:
    if name is None:
        return None
    service_id: int = connection.execute(sa.select(model.service.c.id).where(model.service.c.name == name)).scalar_one()
    return service_id


def _failure_row(write: writes.Progress, failure: writes.Failure) -> dict[str, Any]:
    return {
        "at": write.at,
        "envelope_id": failure.envelope_id,
        "event_id": failure.event_id,
        "role_id": failure.role_id,
        "verb": failure.verb,
        "code": failure.code,
        "message": failure.message,
        "indices": failure.indices,
    }


def _exactly_one(result: sa.CursorResult[Any], otherwise: str) -> None:
    if result.rowcount != 1:
        raise JournalError(otherwise)


# -- the table -------------------------------------------------------------------------------------------------------

_HANDLERS: dict[type, Callable[[sa.Connection, Any], list[Any] | None]] = {
    writes.StartSession: _start_sessions,
    writes.RenewSessions: _renew_sessions,
    writes.EndSession: _end_sessions,
    writes.StorePassword: _store_passwords,
    writes.Register: _register,
    writes.Unregister: _unregister,
    writes.StartEnvelope: _start_envelopes,
    writes.StartEvent: _start_events,
    writes.EndEvent: _end_events,
    writes.Cancel: _cancel,
    writes.Progress: _progress,
    writes.Seal: _seal,
}

KINDS: tuple[type, ...] = (
    writes.StartSession,
    writes.RenewSessions,
    writes.EndSession,
    writes.StorePassword,
    # A recipient that is replaced by a newer one is struck off first. A registration is answered only when it is
    # durable, so none is struck off in the group that brings it.
    writes.Unregister,
    writes.Register,
    writes.StartEnvelope,
    writes.StartEvent,
    writes.Append,
    writes.EndEvent,
    writes.Cancel,
    writes.Progress,
    # Last, so that the one row of head, which every sealing transaction updates, is held as briefly as can be.
    writes.Seal,
)
