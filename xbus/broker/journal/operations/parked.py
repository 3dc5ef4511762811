"""The parked parts of an envelope, and the lists of all that is parked; every answer is bounded."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, note_acts
from xbus.broker.journal.commit.statements.closing import next_positions, receive
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.commit.statements.emission import insert_segments
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.database.rows import NamedRow, NamedRows, grouped, value_of
from xbus.broker.journal.log.deliveries import RESUMED, read_cursors
from xbus.broker.journal.log.event_states import DROPPED, REROUTED, RETRIED
from xbus.broker.journal.log.repeats import Past, read_consumer_services, read_first_names, read_past
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash, make_row
from xbus.broker.journal.operations.envelopes.details import show_envelope
from xbus.broker.journal.operations.failures import known_role_id, role_name
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import Refused
from xbus.states import DELIVERY_MOVES, ITEM_MOVES, DeliveryState, EnvelopeState, ItemState, check_move


@dataclass(frozen=True, slots=True)
class ParkedDelivery:
    """The cause for which a whole envelope is parked; see ``model.delivery``."""

    attempts: int
    code: str
    cause: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ParkedItem:
    """An item that is parked alone.

    Args:
        number: which event of the envelope, from 1.
        index: which item of the event, from 0.
    """

    event_id: UUID
    number: int
    index: int
    code: str
    cause: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Parked:
    """The parked part of an envelope for one role: the whole of it, some items alone, or both.

    Args:
        removed: whether the role is not in use any more.
    """

    envelope_id: UUID
    role_id: int
    role: str
    service: str
    removed: bool
    delivery: ParkedDelivery | None = None
    items: tuple[ParkedItem, ...] = ()


def find_parked(connection: sa.Connection, envelope_id: UUID, role: str | None = None) -> tuple[Past, list[Parked]]:
    """Find an envelope and its parked parts, for each role or for one.

    Raises:
        Refused: the envelope (``envelope_unknown``) or the role (``unknown_login``) does not exist, or nothing of the
            envelope is parked (``not_parked``).
    """
    past = find_past(connection, envelope_id)
    role_id = None if role is None else known_role_id(connection, role)
    found = parked_of(connection, past, role_id)
    if not found:
        raise not_parked(connection, envelope_id, role)
    return past, found


def find_past(connection: sa.Connection, envelope_id: UUID) -> Past:
    """Find an envelope, whether parts of it are parked or not.

    Raises:
        Refused: the envelope does not exist, or was removed for good (``envelope_unknown``).
    """
    past = read_past(connection, envelope_id)
    if past is None:
        raise Refused(f"there is no envelope {envelope_id}", "see xbus parked list", code="envelope_unknown")
    return past


def not_parked(connection: sa.Connection, envelope_id: UUID, role: str | None = None) -> Refused:
    """Make the error for an envelope without parked parts; it says what became of it."""
    detail = show_envelope(connection, envelope_id)
    states = [
        f"{progress.state} for {progress.role}"
        + (f" ({progress.cause})" if progress.state in (RETRIED, DROPPED, REROUTED) else "")
        for progress in (() if detail is None else detail.summary.roles)
        if progress.role is not None and role in (None, progress.role)
    ]
    cause = f"envelope {envelope_id} is not parked" + ("" if role is None else f" for role {role}")
    if states:
        cause += f": it is {', '.join(states)}"
    return Refused(cause, f"see xbus envelope show {envelope_id}", code="not_parked")


def parked_of(connection: sa.Connection, past: Past, role_id: int | None = None) -> list[Parked]:
    """List the parked parts of an envelope, for each role or for one, by login; empty without any."""
    delivery, item = model.delivery.c, model.parked_item.c
    whole = sa.and_(delivery.envelope_id == past.envelope_id, delivery.state == DeliveryState.PARKED.value)
    single = sa.and_(item.envelope_id == past.envelope_id, item.state == ItemState.PARKED.value)
    found: dict[int, Parked] = {}
    for row in connection.execute(_with_role(model.delivery, whole, role_id)):
        found[row.role_id] = replace(
            _nothing(past, row), delivery=ParkedDelivery(row.attempts, row.code, row.cause, row.changed_at)
        )
    numbers = {event.event_id: event.number for event in past.events}
    items = [
        (row, ParkedItem(row.event_id, numbers[row.event_id], row.item_index, row.code, row.cause, row.changed_at))
        for row in connection.execute(_with_role(model.parked_item, single, role_id))
    ]
    for row, parked_item in sorted(items, key=lambda pair: (pair[1].number, pair[1].index)):
        parked = found.get(row.role_id) or _nothing(past, row)
        found[row.role_id] = replace(parked, items=(*parked.items, parked_item))
    return sorted(found.values(), key=lambda parked: parked.role)


def _with_role(table: sa.Table, which: sa.ColumnElement[bool], role_id: int | None) -> NamedRows:
    statement = (
        sa.select(table, model.role.c.login, model.role.c.removed_at, model.service.c.name.label("service"))
        .join(model.role, model.role.c.id == table.c.role_id)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .where(which)
    )
    return statement if role_id is None else statement.where(table.c.role_id == role_id)


def _nothing(past: Past, row: NamedRow) -> Parked:
    return Parked(past.envelope_id, row.role_id, row.login, row.service, row.removed_at is not None)


@dataclass(frozen=True, slots=True)
class Filters:
    """Selects parked parts; None selects all.

    Args:
        role: of the role with this login.
        service: of roles of this service.
        event_type: of envelopes with an event of this type, and items of such events.
        code: parked for a failure with this code.
        until: parked at this moment or before.
    """

    role: str | None = None
    service: str | None = None
    event_type: str | None = None
    code: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ParkedSummary:
    """The parked part of an envelope for one role, in a list.

    Args:
        types: of its events, or of those whose items are parked.
        parked_items: how many of its items are parked alone; None where the envelope is parked as a whole.
        attempts: how often it was handed over; None for items.
        since: when it was parked, the last of them where it is items.
    """

    envelope_id: UUID
    position: int
    role_id: int
    role: str
    service: str
    types: tuple[str, ...]
    parked_items: int | None
    attempts: int | None
    code: str
    cause: str
    since: datetime


def list_parked(connection: sa.Connection, filters: Filters, limit: int) -> list[ParkedSummary]:
    """List the parked parts, the newest first.

    Raises:
        Refused: no role has or had this login (``unknown_login``).
    """
    if filters.role is not None:
        known_role_id(connection, filters.role)
    found = [*_whole_envelopes(connection, filters, limit), *list_parked_items(connection, filters, limit)]
    return sorted(found, key=lambda summary: (summary.since, summary.position), reverse=True)[:limit]


@dataclass(frozen=True, slots=True)
class ParkedGroup:
    """The parked envelopes and items of one role with one code.

    Args:
        envelopes: how many are parked as a whole.
        items: how many items are parked alone.
        cause: of one of them.
        oldest_at: when the first of them was parked.
    """

    role: str
    service: str
    code: str
    envelopes: int
    items: int
    cause: str
    oldest_at: datetime


def count_parked_groups(connection: sa.Connection, filters: Filters) -> list[ParkedGroup]:
    """Count what is parked by role and code, the largest groups first."""
    found: dict[tuple[str, str, str], list[tuple[int, int, str, datetime]]] = defaultdict(list)
    whole = (model.delivery, _joined_deliveries(), _meant_whole(filters), True)
    alone = (model.parked_item, _joined_items(), _meant_items(filters), False)
    for table, joined, meant, is_whole in (whole, alone):
        key = model.role.c.login, model.service.c.name, table.c.code
        oldest = sa.func.min(table.c.changed_at, type_=table.c.changed_at.type)
        counted = sa.select(*key, sa.func.count(), sa.func.min(table.c.cause), oldest)
        for role, service, code, number, cause, since in connection.execute(
            counted.select_from(joined).where(*meant).group_by(*key)
        ):
            numbers = (number, 0) if is_whole else (0, number)
            found[role, service, code].append((*numbers, cause, since))
    groups = [
        ParkedGroup(
            *key,
            envelopes=sum(part[0] for part in parts),
            items=sum(part[1] for part in parts),
            cause=parts[0][2],
            oldest_at=min(part[3] for part in parts),
        )
        for key, parts in found.items()
    ]
    return sorted(groups, key=lambda group: (-group.envelopes - group.items, group.role, group.code))


def read_parked_roles(connection: sa.Connection, filters: Filters) -> list[int]:
    """Read the roles for which whole envelopes are parked."""
    role_id = model.delivery.c.role_id
    statement = sa.select(role_id).select_from(_joined_deliveries()).where(*_meant_whole(filters)).distinct()
    return sorted(connection.execute(statement).scalars())


def read_parked_page(
    connection: sa.Connection, role_id: int, filters: Filters, after: int, limit: int
) -> list[tuple[int, UUID]]:
    """Read whole envelopes that are parked for a role, in position order: position and id.

    Args:
        after: a position; what is returned lies above it.
    """
    delivery = model.delivery.c
    statement = (
        sa.select(delivery.position, delivery.envelope_id)
        .select_from(_joined_deliveries())
        .where(delivery.role_id == role_id, delivery.position > after, *_meant_whole(filters))
        .order_by(delivery.position)
        .limit(limit)
    )
    return [(position, envelope_id) for position, envelope_id in connection.execute(statement)]


def _whole_envelopes(connection: sa.Connection, filters: Filters, limit: int) -> Iterator[ParkedSummary]:
    delivery = model.delivery.c
    named = (delivery.envelope_id, delivery.position, delivery.role_id, *_OF_ROLE, delivery.attempts)
    statement = (
        sa.select(*named, delivery.code, delivery.cause, delivery.changed_at.label("since"))
        .select_from(_joined_deliveries())
        .where(*_meant_whole(filters))
        .order_by(delivery.changed_at.desc(), delivery.position.desc())
        .limit(limit)
    )
    rows = connection.execute(statement).all()
    types = _types(connection, [row.envelope_id for row in rows])
    for row in rows:
        yield value_of(ParkedSummary, row, types=tuple(types[row.envelope_id]), parked_items=None)


_OF_ROLE = (model.role.c.login.label("role"), model.service.c.name.label("service"))


def _joined_deliveries() -> sa.FromClause:
    """Join deliveries with all that the conditions of :func:`_meant_whole` need."""
    with_role = model.delivery.join(model.role, model.role.c.id == model.delivery.c.role_id)
    return with_role.join(model.service, model.service.c.id == model.role.c.service_id)


def _meant_whole(filters: Filters) -> Iterator[sa.ColumnElement[bool]]:
    """Build the conditions that select deliveries, in a statement over :func:`_joined_deliveries`."""
    has_type = sa.exists().where(
        model.event.c.envelope_id == model.delivery.c.envelope_id,
        model.event.c.event_type_id == model.event_type.c.id,
        model.event_type.c.name == filters.event_type,
    )
    return _meant(filters, model.delivery, DeliveryState.PARKED, has_type)


def list_parked_items(connection: sa.Connection, filters: Filters, limit: int) -> Iterator[ParkedSummary]:
    """Iterate over items that are parked alone, the newest first.

    Items of one envelope, role, type and code are one entry.
    """
    parked = model.parked_item.c
    since = sa.func.max(parked.changed_at, type_=parked.changed_at.type)
    of_type = model.event_type.c.name.label("type")
    key = (parked.envelope_id, model.envelope.c.position, parked.role_id, *_OF_ROLE, of_type, parked.code)
    counts = (sa.func.count().label("parked_items"), sa.func.min(parked.cause).label("cause"), since.label("since"))
    statement = (
        sa.select(*key, *counts)
        .select_from(_joined_items())
        .where(*_meant_items(filters))
        .group_by(*(each.element if isinstance(each, sa.Label) else each for each in key))
        .order_by(since.desc(), model.envelope.c.position.desc())
        .limit(limit)
    )
    for row in connection.execute(statement):
        yield value_of(ParkedSummary, row, types=(row.type,), attempts=None)


def _joined_items() -> sa.FromClause:
    """Join items that were parked alone with all that the conditions of :func:`_meant_items` need."""
    parked = model.parked_item.c
    return (
        model.parked_item.join(model.role, model.role.c.id == parked.role_id)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .join(model.event, model.event.c.id == parked.event_id)
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .join(model.envelope, model.envelope.c.id == parked.envelope_id)
    )


def _meant_items(filters: Filters) -> Iterator[sa.ColumnElement[bool]]:
    """Build the conditions that select items, in a statement over :func:`_joined_items`."""
    return _meant(filters, model.parked_item, ItemState.PARKED, model.event_type.c.name == filters.event_type)


def _meant(
    filters: Filters, table: sa.Table, parked: DeliveryState | ItemState, has_type: sa.ColumnElement[bool]
) -> Iterator[sa.ColumnElement[bool]]:
    yield table.c.state == parked.value
    if filters.role is not None:
        yield model.role.c.login == filters.role
    if filters.service is not None:
        yield model.service.c.name == filters.service
    if filters.event_type is not None:
        yield has_type
    if filters.code is not None:
        yield table.c.code == filters.code
    if filters.until is not None:
        yield table.c.changed_at <= filters.until


def _types(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[str]]:
    statement = (
        sa.select(model.event.c.envelope_id, model.event_type.c.name)
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .where(model.event.c.envelope_id.in_(envelope_ids))
        .distinct()
        .order_by(model.event_type.c.name)
    )
    return grouped(connection.execute(statement))


# -- parked moves ------------------------------------------------------------------------------------------------------
# Repairs of a parked envelope: a person resumes it, corrects items of it, or drops it.


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
    values = {
        "attempts": 0,
        "code": RESUMED,
        "cause": f"resumed by {decision.told}",
        "changed_at": decision.at,
        "due_at": None,
    }
    resumed = (
        sa.update(model.delivery)
        .where(_is_parked(role_id, envelope_ids))
        .values(state=DeliveryState.RETRY.value, **values)
        .returning(model.delivery.c.envelope_id)
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
    if connection.execute(statement.where(_is_parked(role_id, [envelope_id]))).rowcount != 1:
        raise not_parked(connection, envelope_id)


def _is_parked(role_id: int, envelope_ids: Sequence[UUID]) -> sa.ColumnElement[bool]:
    delivery = model.delivery.c
    is_of_role = delivery.role_id == role_id
    return is_of_role & delivery.envelope_id.in_(envelope_ids) & (delivery.state == DeliveryState.PARKED.value)


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
