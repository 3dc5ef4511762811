"""The items of parked envelopes: which one is meant, and its bytes."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import read_segments
from xbus.broker.journal.log.repeats import Past, PastEvent
from xbus.broker.journal.operations.parked import Parked, ParkedItem, find_parked, parked_of
from xbus.errors import Refused
from xbus.ids import parse_uuid
from xbus.rpc.codec import unpack_items


@dataclass(frozen=True, slots=True)
class ParkedPlace:
    """An item that is parked for a role, alone or with its envelope."""

    past: Past
    parked: Parked
    event: PastEvent
    index: int

    @property
    def alone(self) -> ParkedItem | None:
        """The item, where it is parked alone."""
        for item in self.parked.items:
            if (item.event_id, item.index) == (self.event.event_id, self.index):
                return item
        return None

    def only(self) -> Parked:
        """Reduce what is parked to this item.

        Raises:
            Refused: it is parked with its envelope (``not_alone``).
        """
        if self.alone is None:
            raise Refused(
                f"item {self.index} of event {self.event.number} is not parked alone, but with its envelope",
                "leave --item out, or correct the item",
                code="not_alone",
            )
        return replace(self.parked, delivery=None, items=(self.alone,))


def find_place(
    connection: Connection, envelope_id: UUID, role: str | None, event: str | None, index: int
) -> ParkedPlace:
    """Find a parked item.

    Args:
        role: the login of the role for which it is parked; optional if that is the only one.
        event: its event's number or id; optional if the envelope has one event only.
        index: the index of the item in the event, from 0.

    Raises:
        Refused: the item does not exist, is not parked, or an option is missing that must be given.
    """
    past, found = find_parked(connection, envelope_id, role)
    named = find_event(past, event)
    check_index(named, index)
    places = _places(connection, past, found, named, index)
    if not places:
        raise Refused(
            f"item {index} of event {named.number} is not parked: it was sent again alone, or dropped, or delivered",
            f"see xbus envelope show {envelope_id}",
            code="not_parked",
        )
    if len(places) > 1:
        logins = ", ".join(place.parked.role for place in places)
        raise Refused(f"envelope {envelope_id} is parked for {logins}", "name one with --role", code="role_wanted")
    return places[0]


def find_meant(
    connection: Connection, envelope_id: UUID, role: str | None, event: str | None, item: int | None
) -> tuple[Past, list[Parked]]:
    """Find the parts that a person means: all parked parts of an envelope, or one item of it.

    Raises:
        Refused: as of :func:`find_place`.
    """
    if item is None:
        return find_parked(connection, envelope_id, role)
    place = find_place(connection, envelope_id, role, event, item)
    return place.past, [place.only()]


def parked_places(connection: Connection, past: Past, event: PastEvent, index: int) -> list[ParkedPlace]:
    """List the places where an item is parked, for each role that lacks it; empty if none does."""
    return _places(connection, past, parked_of(connection, past), event, index)


def _places(
    connection: Connection, past: Past, found: Sequence[Parked], event: PastEvent, index: int
) -> list[ParkedPlace]:
    return [place for parked in found if _is_parked(connection, place := ParkedPlace(past, parked, event, index))]


def _is_parked(connection: Connection, place: ParkedPlace) -> bool:
    if place.alone is not None:
        return True
    if place.parked.delivery is None:
        return False
    overlay = read_overlays(connection, place.parked.role_id, place.past.envelope_id).get(place.event.event_id)
    return overlay is None or place.index not in overlay.left_out


def find_event(past: Past, event: str | None) -> PastEvent:
    """Find an event of an envelope by its number or id; None means the only one.

    Raises:
        Refused: no event fits, or several exist and none is named (``event_unknown``).
    """
    named = [
        known
        for known in past.events
        if event is None or event == str(known.number) or parse_uuid(event) == known.event_id
    ]
    if len(named) == 1:
        return named[0]
    numbers = f"its events are numbered 1 to {len(past.events)}"
    cause = f"envelope {past.envelope_id} has no event {event}" if event is not None else "an event must be named"
    raise Refused(cause, f"{numbers}: name one with --event", code="event_unknown")


def check_index(event: PastEvent, index: int) -> None:
    """Let the index of an item pass.

    Raises:
        Refused: the event has no such item (``item_unknown``).
    """
    if not 0 <= index < (event.items or 0):
        raise Refused(
            f"event {event.number} has no item {index}",
            f"it has {event.items or 0} items, counted from 0",
            code="item_unknown",
        )


def read_items(connection: Connection, event: PastEvent, indices: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Iterate over items of an event as its emitter sent them, with their indices, lowest first.

    Raises:
        Refused: they are no longer kept (``items_gone``).
    """
    first, run = 0, list[bytes]()
    for index in sorted(indices):
        if not first <= index < first + len(run):
            segments = read_segments(connection, event.segments_id, index, max_bytes=1)
            if not segments:
                raise Refused(f"the items of event {event.number} are no longer kept", code="items_gone")
            first, run = segments[0].first_index, unpack_items(segments[0].data, segments[0].items)
        yield index, run[index - first]


def read_item(connection: Connection, event: PastEvent, index: int) -> bytes:
    """Read one item of an event as its emitter sent it.

    Raises:
        Refused: no item has that index (``item_unknown``), or the journal no longer has it (``items_gone``).
    """
    check_index(event, index)
    ((_, item),) = read_items(connection, event, [index])
    return item
