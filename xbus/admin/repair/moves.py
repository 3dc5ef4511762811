"""The repairs of a person: which items are meant; resuming, dropping and correcting them; and moves on failures."""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from uuid import UUID

from xbus.admin.output import counted, moment
from xbus.admin.repair.payload import Payload
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration.detaching import Outlook
from xbus.broker.journal.database.connection import Connection, reading, writing
from xbus.broker.journal.log.catalog import read_graph, read_service_names
from xbus.broker.journal.log.event_states import DONE
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import read_segments
from xbus.broker.journal.log.repeats import Past, PastEvent
from xbus.broker.journal.log.role_progress import MOST_COUNTED
from xbus.broker.journal.operations.corrections import add_correction, hold_sealed, list_sharing, read_corrected_item
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, show_envelope
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.broker.journal.operations.parked import (
    Filters,
    Parked,
    ParkedItem,
    ParkedSummary,
    ResumedEvent,
    drop_delivery,
    drop_items,
    find_parked,
    find_past,
    hold_delivery,
    hold_item,
    list_parked_items,
    parked_of,
    read_parked_page,
    read_parked_roles,
    resume_deliveries,
    resume_delivery,
    resume_items,
)
from xbus.broker.journal.operations.roles import LACKING
from xbus.errors import Refused
from xbus.ids import Ids, parse_uuid
from xbus.rpc.codec import pack_items, unpack_items
from xbus.rpc.items import cut
from xbus.states import EnvelopeState


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


MOST_REPEATS = 20
"""The most other envelopes with the item to look at. More would show more of an often replayed item."""


@dataclass(frozen=True, slots=True)
class CorrectionTarget:
    """An item that is to be corrected.

    Args:
        role: the role that is to get it otherwise; None for all who lack it and all who come.
        places: where it is parked, for each role concerned; for all there may be none.
    """

    past: Past
    event: PastEvent
    index: int
    role: Parked | None
    places: Sequence[ParkedPlace]

    @property
    def role_id(self) -> int | None:
        """The id of the one role; None for all."""
        return None if self.role is None else self.role.role_id


@dataclass(frozen=True, slots=True)
class Standing:
    """The present forms of an item for the roles that a correction concerns.

    Args:
        sent: as its emitter sent it.
        corrected: the corrected forms, by role id; None means all roles that are not named.
        secret: paths of the fields that people do not see.
    """

    sent: bytes
    corrected: Mapping[int | None, bytes]
    secret: Set[str] = frozenset()

    def to(self, role_id: int | None) -> bytes:
        """Give the form for a role; None asks for the roles without a form of their own."""
        return self.corrected.get(role_id, self.corrected.get(None, self.sent))

    def payload(self, role_id: int | None) -> Payload:
        """Read the form for a role, as a person may correct it."""
        return Payload.of(self.to(role_id), self.secret)

    def is_all(self, data: bytes) -> bool:
        """Check whether everybody gets this form already."""
        return {self.to(None), *self.corrected.values()} == {data}


def find_target(
    connection: Connection, envelope_id: UUID, role: str | None, event: str | None, index: int
) -> CorrectionTarget:
    """Find an item that is to be corrected.

    Args:
        role: the login of the role for which it is parked; None to correct it for all.
        event: its event's number or id; optional if the envelope has one event only.
        index: the index of the item in the event, from 0.

    Raises:
        Refused: the item does not exist, it is not parked for the role, its envelope was not received
            (``envelope_open``, ``envelope_closed``), or only an archive has its items (``envelope_archived``).
    """
    if role is not None:
        place = find_place(connection, envelope_id, role, event, index)
        return CorrectionTarget(place.past, place.event, index, place.parked, [place])
    past = find_past(connection, envelope_id)
    _check_received(past)
    named = find_event(past, event)
    check_index(named, index)
    places = _places(connection, past, parked_of(connection, past), named, index)
    return CorrectionTarget(past, named, index, None, places)


def _check_received(past: Past) -> None:
    if past.state is EnvelopeState.OPEN:
        raise Refused(
            f"envelope {past.envelope_id} is still open", "wait until its emitter has ended it", code="envelope_open"
        )
    if past.state is not EnvelopeState.RECEIVED:
        raise Refused(f"envelope {past.envelope_id} is cancelled: nobody gets it", code="envelope_closed")
    if past.archived:
        raise Refused(
            f"the items of envelope {past.envelope_id} are in an archive only",
            f"restore them first: xbus restore {past.envelope_id}",
            code="envelope_archived",
        )


def read_standing(connection: Connection, target: CorrectionTarget) -> Standing:
    """Read how an item is handed over now to those whom a correction would be for.

    Raises:
        Refused: it is no longer kept (``items_gone``).
    """
    corrected = read_corrected_item(connection, target.event.event_id, target.index)
    if target.role is not None:
        corrected = {each: data for each, data in corrected.items() if each in (None, target.role_id)}
    secret = read_secret_fields(connection).get(target.event.type_name, frozenset())
    return Standing(read_item(connection, target.event, target.index), corrected, secret)


def correct(
    connection: Connection, target: CorrectionTarget, found: Standing, after: bytes, decision: RepairDecision
) -> None:
    """Have an item handed over otherwise than it was sent.

    Args:
        found: how it was handed over when that was decided.

    Raises:
        Refused: it is so already (``unchanged``), was corrected meanwhile (``corrected_meanwhile``), is no longer
            parked for the role (``not_parked``), or no longer kept (``items_gone``).
    """
    _hold(connection, target)
    what = f"item {target.index} of event {target.event.number}"
    standing = read_standing(connection, target)
    if standing != found:
        raise Refused(f"somebody else has just corrected {what}", "look at it again", code="corrected_meanwhile")
    if standing.is_all(after) if target.role is None else standing.to(target.role_id) == after:
        raise Refused(f"{what} has this value already", "resume it, or give another value", code="unchanged")
    event_id = target.event.segments_id if target.role is None else target.event.event_id
    add_correction(connection, target.role_id, event_id, target.index, standing.sent, after, decision)


def _hold(connection: Connection, target: CorrectionTarget) -> None:
    """Lock the corrected item until the end of the transaction."""
    if target.role is not None:
        (place,) = target.places
        if place.alone is not None:
            hold_item(connection, place.parked, place.alone)
        else:
            hold_delivery(connection, place.parked.role_id, place.past.envelope_id)
    elif not hold_sealed(connection, target.past.envelope_id, target.event.segments_id):
        raise Refused(f"the items of event {target.event.number} are no longer kept", code="items_gone")


@dataclass(frozen=True, slots=True)
class Reach:
    """The roles that a correction for all reaches.

    Args:
        lacking: logins of the roles that lack the item, each with the item's state there.
        repeats: the same by id for each other envelope with the item, such as a retry or a replay, unless no role lacks
            it.
        having: logins of the roles that have got it before, and keep their form.
        only_roles: the logins of the only roles that the envelope is for; None for all.
        workers: the worker services through which the item goes.
    """

    lacking: Mapping[str, str]
    repeats: Mapping[UUID, Mapping[str, str]]
    having: Sequence[str]
    only_roles: Sequence[str] | None
    workers: Sequence[str]


def read_reach(connection: Connection, target: CorrectionTarget) -> Reach:
    """Read whom a correction for all reaches."""
    detail = show_envelope(connection, target.past.envelope_id)
    states = _states(detail)
    lacking = _lacking(states)
    lacking |= {place.parked.role: "parked alone" for place in target.places if place.alone is not None}
    having = [login for login, state in states.items() if state == DONE and login not in lacking]
    is_shared = target.event.segments_id != target.event.event_id
    only_roles = None if detail is None or is_shared else detail.summary.only_roles
    names = read_service_names(connection)
    workers = [names[key] for key in read_graph(connection, target.event.graph_id).worker_services]
    repeats = {
        envelope_id: _lacking(_states(show_envelope(connection, envelope_id)))
        for envelope_id in list_sharing(connection, target.past.envelope_id, target.event.segments_id, MOST_REPEATS)
    }
    waited_for = {envelope_id: of_it for envelope_id, of_it in repeats.items() if of_it}
    return Reach(lacking, waited_for, having, only_roles, sorted(workers))


def _states(detail: EnvelopeDetail | None) -> dict[str, str]:
    """Read the state of an envelope, by the login of the role."""
    roles = () if detail is None else detail.summary.roles
    return {each.role: each.state for each in roles if each.role is not None}


def _lacking(states: Mapping[str, str]) -> dict[str, str]:
    return {login: state for login, state in states.items() if state in LACKING}


def check_size(item: bytes, most: int) -> None:
    """Let the new form of an item pass.

    Args:
        most: the bytes that an item may have.

    Raises:
        Refused: it is larger (``item_too_large``).
    """
    if len(item) > most:
        raise Refused(f"the item would take {len(item)} bytes", f"make it {most} at the most", code="item_too_large")


def parts_of(parked: Parked) -> str:
    """Name the parked parts of an envelope for a role."""
    whole = [f"envelope {parked.envelope_id}"] if parked.delivery is not None else []
    items = [counted(len(parked.items)) + " of it that were parked alone"] if parked.items else []
    if items and not whole:
        items = [f"{counted(len(parked.items))} of envelope {parked.envelope_id}"]
    return " and ".join(whole + items)


def resumed_sentences(resumed: Resumed) -> Iterator[str]:
    """Report the resumed parts."""
    if resumed.whole:
        yield f"Resumed envelope {resumed.envelope_id} for {resumed.role}."
    if resumed.items_as is not None:
        items = counted(resumed.items)
        yield f"Resumed {items} of envelope {resumed.envelope_id} for {resumed.role}, as envelope {resumed.items_as}."


def reach_sentences(target: CorrectionTarget, reach: Reach) -> Iterator[str]:
    """Say for whom a correction holds, and for whom not."""
    if target.role is None:
        yield from _reached(reach)
    if reach.workers:
        yield f"It goes through the workers again: {', '.join(reach.workers)}."


def _reached(reach: Reach) -> Iterator[str]:
    if reach.only_roles is not None:
        yield f"The envelope is for {', '.join(reach.only_roles)} only."
    if reach.lacking:
        yield f"Roles that lack it: {_named(reach.lacking)}."
    for envelope_id, lacking in reach.repeats.items():
        yield f"Roles that lack it as envelope {envelope_id}: {_named(lacking)}."
    if not (reach.lacking or reach.repeats):
        yield "No role lacks it now."
    if reach.having:
        yield f"Roles that have it keep it as they got it: {', '.join(reach.having)}."


def corrected_sentence(target: CorrectionTarget, *, done: bool) -> str:
    """Say which item is corrected for whom, before or after it is done."""
    what = f"item {target.index} of event {target.event.number}"
    whom = target.role.role if target.role is not None else "all roles that lack it, and for those that come later"
    return f"{'Corrected' if done else 'Corrects'} {what} for {whom}."


def _named(lacking: Mapping[str, str]) -> str:
    return ", ".join(f"{login} ({state})" for login, state in sorted(lacking.items()))


def told(outlook: Outlook) -> Iterator[str]:
    """Say in sentences how much it is, and where it lies."""
    number = f"{outlook.envelopes:,}" + (" or more" if outlook.envelopes >= MOST_COUNTED else "")
    if not outlook.envelopes:
        yield f"{outlook.role} has got all that it is owed."
        return
    yield f"{outlook.role} has not got, and will miss: {number} envelope{'s' * (outlook.envelopes != 1)}."
    if outlook.head > outlook.position:
        yield f"They lie in the log between the positions {outlook.position + 1} and {outlook.head}."
    if outlook.since is not None:
        yield f"The oldest was received at {moment(outlook.since)}."
    if outlook.rows:
        counts = ", ".join(f"{number:,} {state}" for state, number in sorted(outlook.rows.items()))
        yield f"Some had their turn already: {counts}."
