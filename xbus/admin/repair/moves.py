"""The moves of a person on parked work and on failures: which items are meant, resuming, dropping, and whole lists."""

import getpass
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from xbus.broker.journal.audit import RepairDecision, acting_person
from xbus.broker.journal.database.connection import Connection, reading, writing
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import read_segments
from xbus.broker.journal.log.repeats import Past, PastEvent
from xbus.broker.journal.operations.failures import Assign, FailureMove, move_group_page, show_group
from xbus.broker.journal.operations.parked import Parked, ParkedItem, find_parked, parked_of
from xbus.broker.journal.operations.parked_items import ResumedEvent, drop_items, resume_items
from xbus.broker.journal.operations.parked_list import (
    Filters,
    ParkedSummary,
    list_parked_items,
    read_parked_page,
    read_parked_roles,
)
from xbus.broker.journal.operations.parked_moves import drop_delivery, resume_deliveries, resume_delivery
from xbus.broker.journal.people import known_person
from xbus.clock import Clock
from xbus.ending import printable_lines
from xbus.errors import Refused
from xbus.ids import Ids, parse_uuid
from xbus.rpc.codec import pack_items, unpack_items
from xbus.rpc.items import cut


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


PAGE = 500
"""Envelopes that one transaction resumes."""

MOST_ENTRIES = 100_000
"""The most entries of items parked alone that are resumed at once; each becomes an envelope."""


@dataclass(slots=True)
class Done:
    """The counts of resumed parts, and why some items were not resumed."""

    envelopes: int = 0
    items: int = 0
    refusals: list[Refused] = field(default_factory=list)


def resume_all(url: str, filters: Filters, decision: RepairDecision, ids: Ids) -> Done:
    """Resume all parked parts that the filters select; one page is one transaction.

    Args:
        url: of the database.
        filters: with ``until``, because a resumed envelope may be parked again at once.
    """
    done = Done()
    with reading(url) as connection:
        role_ids = read_parked_roles(connection, filters)
        entries = list(list_parked_items(connection, filters, MOST_ENTRIES))
    for role_id in role_ids:
        done.envelopes += _resume_envelopes(url, role_id, filters, decision)
    for entry in entries:
        try:
            done.items += _resume_items_of(url, entry, decision, ids)
        except Refused as refusal:
            done.refusals.append(refusal)
    return done


def _resume_envelopes(url: str, role_id: int, filters: Filters, decision: RepairDecision) -> int:
    """Resume those of one role, lowest position first; how many."""
    resumed = after = 0
    while True:
        with writing(url) as connection:
            page = read_parked_page(connection, role_id, filters, after, PAGE)
            resumed += resume_deliveries(connection, role_id, [envelope_id for _, envelope_id in page], decision)
        if len(page) < PAGE:
            return resumed
        after = page[-1][0]


def _resume_items_of(url: str, entry: ParkedSummary, decision: RepairDecision, ids: Ids) -> int:
    """Resume the items that an entry of the list is about; how many."""
    with writing(url) as connection:
        past, (parked,) = find_parked(connection, entry.envelope_id, entry.role)
        types = {event.event_id: event.type_name for event in past.events}
        items = [item for item in parked.items if item.code == entry.code and types[item.event_id] in entry.types]
        resume(connection, past, replace(parked, delivery=None, items=tuple(items)), decision, ids)
    return len(items)


Writing: TypeAlias = Callable[[], AbstractContextManager[Connection]]
"""Opens a short transaction, again and again."""


def assignment(connection: Connection, name: str) -> Assign:
    """Make the move that has a person look after failures.

    Raises:
        Refused: nobody has the name (``unknown_person``), or the person is disabled (``person_disabled``).
    """
    person = known_person(connection, name)
    if person.disabled_at is not None:
        raise Refused(f"{person.name} is disabled", "name another person: xbus person list", code="person_disabled")
    return Assign(person.name)


def newest_of_group(connection: Connection, fingerprint: str) -> int:
    """Find the id of the newest failure of a group.

    Raises:
        Refused: no failure has this fingerprint (``failure_group_unknown``).
    """
    return show_group(connection, fingerprint, limit=1).group.newest.id


def move_group(writing: Writing, fingerprint: str, move: FailureMove, at: datetime, until: int) -> int:
    """Carry a move out on a whole group, in as many short transactions as it takes.

    If a page fails, the pages before it stay moved. The same move once more does the rest.

    Args:
        until: the id of the last failure that the person means: one that comes meanwhile is news.

    Returns:
        How many failures were moved.

    Raises:
        Refused: ``fingerprint`` is none (``failure_group_unknown``).
    """
    moved, after = 0, 0
    while True:
        with writing() as connection:
            step = move_group_page(connection, fingerprint, move, at, after=after, until=until)
        moved += step.moved
        if step.last_id is None:
            return moved
        after = step.last_id
