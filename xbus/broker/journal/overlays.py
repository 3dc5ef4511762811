"""What a role gets otherwise than its emitter sent it: items that were corrected, and items that it goes without."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
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
