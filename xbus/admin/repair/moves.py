"""The repairs that commands make: they resume and drop parked envelopes and items."""

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from xbus.admin.repair.places import ParkedPlace, read_item, read_items
from xbus.broker.journal.audit import RepairDecision, acting_person
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.repeats import Past
from xbus.broker.journal.operations.parked import Parked, ParkedItem
from xbus.broker.journal.operations.parked_items import ResumedEvent, drop_items, resume_items
from xbus.broker.journal.operations.parked_moves import drop_delivery, resume_delivery
from xbus.clock import Clock
from xbus.ending import printable_lines
from xbus.ids import Ids
from xbus.rpc.codec import pack_items
from xbus.rpc.items import cut

SEGMENT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Resumed:
    """The resumed parts of an envelope for one role.

    Args:
        whole: whether the envelope itself is redelivered.
        items: how many items are sent again as an envelope of their own, ``items_as``.
    """

    envelope_id: UUID
    role: str
    whole: bool
    items: int = 0
    items_as: UUID | None = None


def decision_of(clock: Clock, reason: str) -> RepairDecision:
    """Make the decision of the person of ``acting_as``, otherwise of the one at the keyboard, as of now."""
    # Emitters read it in the errors that they get, and terminals would obey it.
    return RepairDecision(acting_person() or _user(), printable_lines(reason.strip()), clock.now())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user of a container has an id at least.
        return f"user {os.getuid()}"


def present_item(connection: Connection, place: ParkedPlace) -> bytes:
    """Read an item in its present form for its role."""
    overlay = read_overlays(connection, place.parked.role_id, place.past.envelope_id).get(place.event.event_id)
    corrected = None if overlay is None else overlay.corrected.get(place.index)
    return read_item(connection, place.event, place.index) if corrected is None else corrected


def resume(connection: Connection, past: Past, parked: Parked, decision: RepairDecision, ids: Ids) -> Resumed:
    """Resume all parked parts of an envelope for a role.

    Raises:
        Refused: nothing of it is parked any more (``not_parked``), or items can't reach the role
            (``role_not_reached``).
    """
    if parked.delivery is not None:
        resume_delivery(connection, parked.role_id, parked.envelope_id, decision)
    items_as = _resume_items(connection, past, parked, parked.items, decision, ids) if parked.items else None
    return Resumed(parked.envelope_id, parked.role, parked.delivery is not None, len(parked.items), items_as)


def resume_place(connection: Connection, place: ParkedPlace, decision: RepairDecision, ids: Ids) -> Resumed:
    """Resume a parked item: alone if it is parked alone, otherwise with its envelope.

    Raises:
        Refused: as :func:`resume`.
    """
    meant = replace(place.parked, items=()) if place.alone is None else place.only()
    return resume(connection, place.past, meant, decision, ids)


def drop(connection: Connection, parked: Parked, decision: RepairDecision) -> None:
    """Have a role go without all that is parked of an envelope for it, for good.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    if parked.delivery is not None:
        drop_delivery(connection, parked.role_id, parked.envelope_id, decision)
    drop_items(connection, parked, parked.items, decision)


def _resume_items(
    connection: Connection, past: Past, parked: Parked, items: Sequence[ParkedItem], decision: RepairDecision, ids: Ids
) -> UUID:
    overlays = read_overlays(connection, parked.role_id, past.envelope_id)
    events: list[ResumedEvent] = []
    for event in past.events:
        own = {item.index: item for item in items if item.event_id == event.event_id}
        if own:
            corrected = overlays[event.event_id].corrected
            data = [corrected.get(index, item) for index, item in read_items(connection, event, own)]
            runs = [(len(run), pack_items(run)) for run in cut(data, SEGMENT_BYTES)]
            events.append(ResumedEvent(ids.new(), event.event_id, [own[index] for index in sorted(own)], runs))
    envelope_id = ids.new()
    resume_items(connection, envelope_id, past, parked, events, decision)
    return envelope_id
