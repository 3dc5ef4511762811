"""Reads the parked parts of an envelope for repairs: the whole of it, or isolated items."""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows
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
