"""Correcting an item, for one role or for all: which item is meant, its correction, and its sentences."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

from xbus.admin.output import counted, moment
from xbus.admin.repair.moves import ParkedPlace, Resumed, check_index, find_event, find_place, parked_places, read_item
from xbus.admin.repair.payload import Payload
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration.detaching import Outlook
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_graph, read_service_names
from xbus.broker.journal.log.event_states import DONE
from xbus.broker.journal.log.repeats import Past, PastEvent
from xbus.broker.journal.log.role_progress import MOST_COUNTED
from xbus.broker.journal.operations.backlog import LACKING
from xbus.broker.journal.operations.corrections import (
    add_correction,
    hold_sealed,
    list_sharing,
    read_corrected_item,
)
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, show_envelope
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.broker.journal.operations.parked import Parked, find_past
from xbus.broker.journal.operations.parked_items import hold_item
from xbus.broker.journal.operations.parked_moves import hold_delivery
from xbus.errors import Refused
from xbus.states import EnvelopeState

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
    return CorrectionTarget(past, named, index, None, parked_places(connection, past, named, index))


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
