"""Reads overlays: items that a role gets corrected, and items that it goes without."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model


@dataclass(frozen=True, slots=True)
class EventOverlay:
    """How an event differs for one role from what its emitter sent.

    Args:
        corrected: items that it gets instead, by index.
        left_out: the indices of those that it does not get, as they were parked alone.
    """

    corrected: Mapping[int, bytes]
    left_out: frozenset[int]


@dataclass(frozen=True, slots=True)
class OverlaidItem:
    """An item that a role gets otherwise than it was sent, or not with its event.

    Args:
        number: which event of the envelope, from 1.
        index: which item of the event, from 0.
        state: ``corrected``, or an :class:`~xbus.states.ItemState` where it was parked alone.
        cause: who corrected it and why, or what the recipient said of it.
    """

    role: str
    number: int
    index: int
    state: str
    cause: str


def list_overlaid(connection: sa.Connection, envelope_id: UUID, limit: int) -> list[OverlaidItem]:
    """The items of an envelope that some role gets otherwise, in their order.

    Args:
        limit: how many at the most.
    """
    correction, parked = model.correction, model.parked_item
    corrected = sa.literal("corrected").label("state")
    wanted = sa.union_all(
        _overlaid(correction, envelope_id, corrected, correction.c.reason),
        _overlaid(parked, envelope_id, parked.c.state, parked.c.cause),
    )
    found = connection.execute(wanted.order_by("login", "number", "item_index").limit(limit))
    return [OverlaidItem(*row) for row in found]


def _overlaid(
    table: sa.Table, envelope_id: UUID, state: sa.ColumnElement[str], cause: sa.ColumnElement[str]
) -> sa.Select[Any]:
    return (
        sa.select(model.role.c.login, model.event.c.number, table.c.item_index, state, cause)
        .join(model.role, model.role.c.id == table.c.role_id)
        .join(model.event, model.event.c.id == table.c.event_id)
        .where(model.event.c.envelope_id == envelope_id)
    )


def read_overlays(connection: sa.Connection, role_id: int, envelope_id: UUID) -> dict[UUID, EventOverlay]:
    """How the events of an envelope differ for a role, by event id; one that does not differ is not among them."""
    corrected = _corrected(connection, role_id, envelope_id)
    left_out = _left_out(connection, role_id, envelope_id)
    return {
        event_id: EventOverlay(corrected.get(event_id, {}), frozenset(left_out.get(event_id, ())))
        for event_id in corrected.keys() | left_out.keys()
    }


def _corrected(connection: sa.Connection, role_id: int, envelope_id: UUID) -> dict[UUID, dict[int, bytes]]:
    correction = model.correction.c
    statement = (
        sa.select(correction.event_id, correction.item_index, correction.after)
        .join(model.event, model.event.c.id == correction.event_id)
        .where(model.event.c.envelope_id == envelope_id, correction.role_id == role_id)
        # Of several corrections of one item the last one stands.
        .order_by(correction.id)
    )
    corrected: defaultdict[UUID, dict[int, bytes]] = defaultdict(dict)
    for event_id, index, after in connection.execute(statement):
        corrected[event_id][index] = bytes(after)
    return corrected


def _left_out(connection: sa.Connection, role_id: int, envelope_id: UUID) -> dict[UUID, set[int]]:
    """Whatever became of them: those that were resumed go as an envelope of their own."""
    parked = model.parked_item.c
    statement = sa.select(parked.event_id, parked.item_index).where(
        parked.envelope_id == envelope_id, parked.role_id == role_id
    )
    left_out: defaultdict[UUID, set[int]] = defaultdict(set)
    for event_id, index in connection.execute(statement):
        left_out[event_id].add(index)
    return left_out
