"""Repairs of a parked envelope: a person resumes it, corrects items of it, or drops it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, note_acts
from xbus.broker.journal.commit.statements.closing import next_positions, receive
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.commit.statements.emission import insert_segments
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.log.deliveries import RESUMED, read_cursors
from xbus.broker.journal.log.event_states import DROPPED
from xbus.broker.journal.log.repeats import Past, read_consumer_services, read_first_names
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash, make_row
from xbus.broker.journal.operations.failures import role_name
from xbus.broker.journal.operations.parked import Parked, ParkedItem, not_parked
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import Refused
from xbus.states import DELIVERY_MOVES, ITEM_MOVES, DeliveryState, EnvelopeState, ItemState, check_move


def resume_delivery(connection: sa.Connection, role_id: int, envelope_id: UUID, decision: RepairDecision) -> None:
    """Have a parked envelope delivered again; its attempts are counted anew.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    if not resume_deliveries(connection, role_id, [envelope_id], decision):
        raise not_parked(connection, envelope_id)


def resume_deliveries(
    connection: sa.Connection, role_id: int, envelope_ids: Sequence[UUID], decision: RepairDecision
) -> int:
    """Have those of some envelopes delivered again that are parked still; how many they are."""
    check_move(DELIVERY_MOVES, DeliveryState.PARKED, DeliveryState.RETRY)
    delivery = model.delivery.c
    values = {
        "attempts": 0,
        "code": RESUMED,
        "cause": f"resumed by {decision.told}",
        "changed_at": decision.at,
        "due_at": None,
    }
    resumed = (
        sa.update(model.delivery)
        .where(
            delivery.role_id == role_id,
            delivery.envelope_id.in_(envelope_ids),
            delivery.state == DeliveryState.PARKED.value,
        )
        .values(state=DeliveryState.RETRY.value, **values)
        .returning(delivery.envelope_id)
    )
    moved = connection.execute(resumed).scalars().all()
    _remember(connection, role_id, moved, RESUMED, decision)
    return len(moved)


def drop_delivery(connection: sa.Connection, role_id: int, envelope_id: UUID, decision: RepairDecision) -> None:
    """Have a role go without a parked envelope, for good.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    check_move(DELIVERY_MOVES, DeliveryState.PARKED, DeliveryState.SETTLED)
    _move(connection, sa.delete(model.delivery), role_id, envelope_id)
    _remember(connection, role_id, [envelope_id], DROPPED, decision)


def hold_delivery(connection: sa.Connection, role_id: int, envelope_id: UUID) -> None:
    """Keep a parked envelope as it is until the end of the transaction: nobody else moves it meanwhile.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    untouched = sa.update(model.delivery).values(state=DeliveryState.PARKED.value)
    _move(connection, untouched, role_id, envelope_id)


def _move(connection: sa.Connection, statement: Any, role_id: int, envelope_id: UUID) -> None:
    delivery = model.delivery.c
    is_parked = sa.and_(
        delivery.role_id == role_id,
        delivery.envelope_id == envelope_id,
        delivery.state == DeliveryState.PARKED.value,
    )
    if connection.execute(statement.where(is_parked)).rowcount != 1:
        raise not_parked(connection, envelope_id)


def _remember(
    connection: sa.Connection, role_id: int, envelope_ids: Sequence[UUID], move: str, decision: RepairDecision
) -> None:
    role = role_name(connection, role_id)
    for envelope_id in envelope_ids:
        remember(connection, decision.at, "delivery", f"{role_id} {envelope_id}", move, decision.told)
    acts = [
        decision.act(move, f'envelope {envelope_id} for role "{role}"', before="parked") for envelope_id in envelope_ids
    ]
    note_acts(connection, acts)


@dataclass(frozen=True, slots=True)
class ResumedEvent:
    """An event of the envelope that sends items again.

    Args:
        event_id: its new id.
        origin_id: the event of the items.
        items: its items, in order.
        runs: the same in the form of the database: numbers, and bytes as in ``model.segment``.
    """

    event_id: UUID
    origin_id: UUID
    items: Sequence[ParkedItem]
    runs: Sequence[tuple[int, bytes]]

    def segments(self) -> list[SegmentRow]:
        """Make its rows of ``model.segment``."""
        rows: list[SegmentRow] = []
        index = 0
        for items, data in self.runs:
            rows.append(make_row(self.event_id, index, items, data, compressed=False))
            index += items
        return rows


def resume_items(
    connection: sa.Connection,
    envelope_id: UUID,
    past: Past,
    parked: Parked,
    events: Sequence[ResumedEvent],
    decision: RepairDecision,
) -> SealReceipt:
    """Send parked items again, as a received envelope for their role alone.

    Args:
        envelope_id: of the new envelope.
        past: the envelope of the items.
        parked: names the role.
        events: the events of the new envelope.

    Raises:
        Refused: one of them is no longer parked (``not_parked``), or the role is not owed anything, or a type no longer
            leads to it (``role_not_reached``).
    """
    types = {event.event_id: (event.type_name, event.event_type_id) for event in past.events}
    graphs = _graphs(connection, parked, [types[event.origin_id] for event in events])
    hashed = read_first_names(connection, graphs)
    tags = {event.event_id: event.tags for event in past.events}
    for event in events:
        _move_items(connection, parked, event.items, ItemState.RESUMED, decision, resumed_as=envelope_id)
    headers = _open(connection, envelope_id, past, decision)
    contents: list[Content] = []
    segments: list[SegmentRow] = []
    for number, event in enumerate(events, 1):
        _, type_id = types[event.origin_id]
        row = {"id": event.event_id, "envelope_id": envelope_id, "number": number, "event_type_id": type_id}
        items = len(event.items)
        row |= {"graph_id": graphs[type_id], "estimate": items, "items": items, **tags[event.origin_id]._asdict()}
        connection.execute(sa.insert(model.event).values(row))
        rows = event.segments()
        segments += rows
        contents.append(Content(hashed[type_id], items, [segment.hash for segment in rows], tags[event.origin_id]))
    insert_segments(connection, segments)
    connection.execute(sa.insert(model.envelope_role).values(envelope_id=envelope_id, role_id=parked.role_id))
    (position,) = next_positions(driver_of(connection), 1)
    _check_owed(connection, parked, position)
    receipt = SealReceipt(
        envelope_id,
        position,
        len(contents),
        sum(content.items for content in contents),
        sum(len(segment.data) for segment in segments),
        content_hash(contents, headers),
    )
    receive(connection, receipt, decision.at)
    _account(connection, receipt.data_bytes)
    return receipt


def drop_items(
    connection: sa.Connection, parked: Parked, items: Sequence[ParkedItem], decision: RepairDecision
) -> None:
    """Have a role go without items that are parked, for good.

    Raises:
        Refused: one of them is no longer parked (``not_parked``).
    """
    _move_items(connection, parked, items, ItemState.DROPPED, decision)


def hold_item(connection: sa.Connection, parked: Parked, item: ParkedItem) -> None:
    """Keep a parked item as it is until the end of the transaction: nobody else moves it meanwhile.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    _set(connection, parked, item, {"state": ItemState.PARKED.value})


def _move_items(
    connection: sa.Connection,
    parked: Parked,
    items: Sequence[ParkedItem],
    state: ItemState,
    decision: RepairDecision,
    resumed_as: UUID | None = None,
) -> None:
    check_move(ITEM_MOVES, ItemState.PARKED, state)
    reason = decision.told + ("" if resumed_as is None else f" (comes again as envelope {resumed_as})")
    for item in items:
        _set(connection, parked, item, {"state": state.value, "changed_at": decision.at, "resumed_as": resumed_as})
        subject_id = f"{parked.role_id} {item.event_id} {item.index}"
        remember(connection, decision.at, "item", subject_id, state, reason)
    after = "" if resumed_as is None else f"envelope {resumed_as}"
    of_role = f'of envelope {parked.envelope_id} for role "{parked.role}"'
    things = [f"item {item.index} of event {item.number} {of_role}" for item in items]
    note_acts(connection, [decision.act(state.value, thing, before="parked alone", after=after) for thing in things])


def _set(connection: sa.Connection, parked: Parked, item: ParkedItem, values: dict[str, Any]) -> None:
    row = model.parked_item.c
    statement = sa.update(model.parked_item).where(
        row.role_id == parked.role_id,
        row.event_id == item.event_id,
        row.item_index == item.index,
        row.state == ItemState.PARKED.value,
    )
    if connection.execute(statement.values(values)).rowcount != 1:
        raise Refused(
            f"item {item.index} of event {item.number} is no longer parked for role {parked.role}",
            f"see xbus parked show {parked.envelope_id}",
            code="not_parked",
        )


def _open(connection: sa.Connection, envelope_id: UUID, past: Past, decision: RepairDecision) -> bytes | None:
    """Begin the new envelope with what the past one was sent with; return its headers."""
    of_past = sa.select(*model.REPEATED_HEAD).where(model.envelope.c.id == past.envelope_id)
    head = connection.execute(of_past).mappings().one()
    row = {
        "id": envelope_id,
        "emitter_id": past.emitter_id,
        "state": EnvelopeState.OPEN,
        "opened_at": decision.at,
        "origin_id": past.envelope_id,
        **head,
    }
    connection.execute(sa.insert(model.envelope).values(row))
    return None if head["headers"] is None else bytes(head["headers"])


def _graphs(connection: sa.Connection, parked: Parked, types: Sequence[tuple[str, int]]) -> dict[int, int]:
    """Read for each of these event types its present graph, which must lead to the role."""
    graph = model.graph.c
    statement = (
        sa.select(graph.event_type_id, graph.id)
        .where(graph.event_type_id.in_([type_id for _, type_id in types]))
        .order_by(graph.number)
    )
    graphs: dict[int, int] = {row.event_type_id: row.id for row in connection.execute(statement)}
    services = read_consumer_services(connection, set(graphs.values()))
    own = sa.select(model.role.c.service_id).where(model.role.c.id == parked.role_id)
    service_id = connection.execute(own).scalar_one()
    for name, type_id in types:
        if service_id not in services[graphs[type_id]]:
            raise _not_reached(parked, f'events of type "{name}" no longer lead to role {parked.role}')
    return graphs


def _account(connection: sa.Connection, data_bytes: int) -> None:
    """Add the stored bytes to the broker's count; before its first start no count exists."""
    writer = model.writer.c
    first = sa.select(sa.func.min(writer.name)).scalar_subquery()
    grown = sa.update(model.writer).where(writer.name == first).values(stored_bytes=writer.stored_bytes + data_bytes)
    connection.execute(grown)


def _check_owed(connection: sa.Connection, parked: Parked, position: int) -> None:
    cursor = read_cursors(connection).get(parked.role_id)
    if parked.removed or cursor is None or not cursor.owes(position):
        raise _not_reached(parked, f"role {parked.role} is not owed anything any more: it is removed or detached")


def _not_reached(parked: Parked, cause: str) -> Refused:
    return Refused(
        cause,
        f"bring it back, or drop what is parked of envelope {parked.envelope_id} for it",
        code="role_not_reached",
    )
