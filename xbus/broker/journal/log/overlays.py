"""Reads overlays: items that were corrected, for a role or for all, and items that a role goes without."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import grouped

CONCERNS_EVENT = sa.or_(
    sa.and_(model.correction.c.role_id.is_not(None), model.correction.c.event_id == model.event.c.id),
    sa.and_(
        model.correction.c.role_id.is_(None),
        model.correction.c.event_id == sa.func.coalesce(model.event.c.origin_id, model.event.c.id),
    ),
)
"""Joins corrections and the events of their items. A correction for all concerns each event over its segments."""


@dataclass(frozen=True, slots=True)
class EventOverlay:
    """The differences of an event, for one role or for all, from what its emitter sent.

    Args:
        corrected: items that it gets instead, by index.
        left_out: the indices of those that it does not get, as they were parked alone.
    """

    corrected: Mapping[int, bytes]
    left_out: frozenset[int]


@dataclass(frozen=True, slots=True)
class OverlaidItem:
    """An item that is handed over otherwise than it was sent, or not with its event.

    Args:
        role: the login of the role that it is about; None for all who lack the item and all who come.
        number: which event of the envelope, from 1.
        index: which item of the event, from 0.
        state: ``corrected``, ``as_sent`` where a correction was taken back, or an :class:`~xbus.states.ItemState` where
            it was parked alone.
        at: since when it is so.
        cause: who corrected it and why, or what the recipient said of it.
    """

    role: str | None
    number: int
    index: int
    state: str
    at: datetime
    cause: str


def list_overlaid(connection: sa.Connection, envelope_id: UUID, limit: int) -> list[OverlaidItem]:
    """List the items of an envelope that are handed over otherwise, in their order, and of each the oldest first."""
    correction, parked = model.correction.c, model.parked_item.c
    made = sa.case((correction.after == correction.before, AS_SENT), else_=CORRECTED).label("state")
    corrected = _overlaid(model.correction, CONCERNS_EVENT, made, correction.at, correction.reason)
    is_of_event = parked.event_id == model.event.c.id
    alone = _overlaid(model.parked_item, is_of_event, parked.state, parked.changed_at, parked.cause)
    wanted = sa.union_all(
        *(found.where(model.event.c.envelope_id == envelope_id) for found in (corrected, alone)),
    )
    found = connection.execute(wanted.order_by("number", "item_index", "at", "state", "login").limit(limit))
    return [
        OverlaidItem(role or None, number, index, state, at, cause) for role, number, index, state, at, cause in found
    ]


CORRECTED = "corrected"
AS_SENT = "as_sent"
"""The names of the states of corrected items."""


def _overlaid(
    table: sa.Table,
    is_of_event: sa.ColumnElement[bool],
    state: sa.ColumnElement[str],
    at: sa.ColumnElement[datetime],
    cause: sa.ColumnElement[str],
) -> "sa.Select[str, int, int, str, datetime, str]":
    # Databases do not agree on where nothing is in an order, so it is an empty text.
    login = sa.func.coalesce(model.role.c.login, "").label("login")
    return (
        sa.select(login, model.event.c.number, table.c.item_index, state, at.label("at"), cause)
        .select_from(model.event)
        .join(table, is_of_event)
        .outerjoin(model.role, model.role.c.id == table.c.role_id)
    )


def read_overlays(connection: sa.Connection, role_id: int | None, envelope_id: UUID) -> dict[UUID, EventOverlay]:
    """Read how the events of an envelope differ, by event id; one that does not differ is not among them.

    Args:
        role_id: the role that is to get it on its own; None for those who get it in its turn.
    """
    corrected = _corrected(connection, role_id, envelope_id)
    left_out = {} if role_id is None else _left_out(connection, role_id, envelope_id)
    return {
        event_id: EventOverlay(corrected.get(event_id, {}), frozenset(left_out.get(event_id, ())))
        for event_id in corrected.keys() | left_out.keys()
    }


def _corrected(connection: sa.Connection, role_id: int | None, envelope_id: UUID) -> dict[UUID, dict[int, bytes]]:
    correction = model.correction.c
    statement = (
        sa.select(model.event.c.id, correction.item_index, correction.after)
        .select_from(model.event)
        .join(model.correction, CONCERNS_EVENT)
        .where(
            model.event.c.envelope_id == envelope_id,
            sa.or_(correction.role_id.is_(None), correction.role_id == role_id),
        )
        # Of several corrections of one item the last one counts.
        .order_by(correction.id)
    )
    corrected: defaultdict[UUID, dict[int, bytes]] = defaultdict(dict)
    for event_id, index, after in connection.execute(statement):
        corrected[event_id][index] = bytes(after)
    return corrected


def _left_out(connection: sa.Connection, role_id: int, envelope_id: UUID) -> Mapping[UUID, Collection[int]]:
    """Read the items to leave out, whatever became of them: resumed ones go as an envelope of their own."""
    parked = model.parked_item.c
    statement = sa.select(parked.event_id, parked.item_index).where(
        parked.envelope_id == envelope_id, parked.role_id == role_id
    )
    return grouped(connection.execute(statement))
