"""The parked parts of an envelope, and the lists of all that is parked; every answer is bounded."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows, value_of
from xbus.broker.journal.log.event_states import DROPPED, REROUTED, RETRIED
from xbus.broker.journal.log.repeats import Past, read_past
from xbus.broker.journal.operations.envelopes.details import show_envelope
from xbus.broker.journal.operations.failures import known_role_id
from xbus.errors import Refused
from xbus.states import DeliveryState, ItemState


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
        yield value_of(ParkedSummary, row, types=types[row.envelope_id], parked_items=None)


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


def _types(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
    statement = (
        sa.select(model.event.c.envelope_id, model.event_type.c.name)
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .where(model.event.c.envelope_id.in_(envelope_ids))
        .distinct()
        .order_by(model.event_type.c.name)
    )
    types: defaultdict[UUID, tuple[str, ...]] = defaultdict(tuple)
    for envelope_id, name in connection.execute(statement):
        types[envelope_id] += (name,)
    return types
