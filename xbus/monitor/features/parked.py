"""Parked envelopes, items and batches: what is parked and why, and the repairs: resume, drop, correct."""

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar
from uuid import UUID

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse
from pydantic import Field

from xbus.admin.objects import of_parked_batch, of_parked_part, shown
from xbus.admin.output import counted, escaped
from xbus.admin.repair.moves import (
    check_size,
    correct,
    corrected_sentence,
    drop,
    find_meant,
    find_target,
    parts_of,
    reach_sentences,
    read_reach,
    read_standing,
    resume,
    resume_all,
    resume_place,
    resumed_sentences,
)
from xbus.admin.repair.payload import Kind
from xbus.admin.repair.view import view
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.repeats import Past
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.parked import Parked
from xbus.broker.journal.operations.parked_list import Filters, count_parked_groups, list_parked
from xbus.broker.journal.people import Right
from xbus.broker.journal.readers.parked import (
    ParkedBatch,
    drop_batch,
    find_parked_batch,
    list_parked_batches,
    read_parked_events,
    resume_batch,
)
from xbus.errors import Refused
from xbus.ids import Ids
from xbus.monitor.actions import Action, OptionalReason, Reason, asked
from xbus.monitor.bus import BusAccess, VisitorBus
from xbus.monitor.features.envelopes import Id, Limit
from xbus.monitor.queries import Name, ParkedQuery, digits_of
from xbus.monitor.rendering import TheBus, ThePage, TheVisitor
from xbus.monitor.rest import ObjectResponse, answer, answer_list

router = APIRouter(prefix="/parked")

PAGE_ROWS = 100


@router.get("")
def list_(bus: TheBus, page: ThePage, query: Annotated[ParkedQuery, Query()]) -> HTMLResponse:
    """Show what is parked: how much for which role with which code, and the newest of it."""
    with bus.reading() as connection:
        groups = count_parked_groups(connection, query.filters())
        found = list_parked(connection, query.filters(), PAGE_ROWS)
    return page("parked/list.html", groups=groups, found=found, query=query, is_cut=len(found) == PAGE_ROWS)


@router.get("/{digits}")
def show(
    bus: TheBus,
    page: ThePage,
    digits: str,
    role: str = "",
    event: str = "",
    first: Annotated[int, Query(alias="from", ge=0, le=2**53)] = 0,
) -> HTMLResponse:
    """Show a parked envelope: for whom, why, and which items are to blame, each with the form that corrects it."""
    span = (first, first + 19) if event else None
    with bus.reading() as connection:
        envelope_id = resolve_envelope(connection, digits_of(digits))
        found = view(connection, envelope_id, role or None, event or None, span)
    return page("parked/show.html", it=found, role=role, here=f"/parked/{envelope_id}")


api = APIRouter(prefix="/parked", tags=["parked"], default_response_class=ObjectResponse)


@api.get("", operation_id="list_parked")
def list_json(bus: TheBus, _: TheVisitor, query: Annotated[ParkedQuery, Query()], limit: Limit = 20) -> ObjectResponse:
    """List parked envelopes and items, the newest first."""
    found = bus.read(lambda connection: list_parked(connection, query.filters(), limit))
    return answer_list(map(of_parked_part, found))


@api.get("/groups", operation_id="count_parked")
def groups_json(bus: TheBus, _: TheVisitor, query: Annotated[ParkedQuery, Query()]) -> ObjectResponse:
    """Count what is parked, by role and code."""
    found = bus.read(lambda connection: count_parked_groups(connection, query.filters()))
    return answer_list(map(shown, found))


@api.get("/{envelope_id}", operation_id="show_parked")
def show_json(
    bus: TheBus, _: TheVisitor, envelope_id: Id, role: Annotated[str | None, Query(max_length=255)] = None
) -> ObjectResponse:
    """Show a parked envelope: for whom, why, and the items that failures name."""
    found = bus.read(lambda connection: view(connection, resolve_envelope(connection, digits_of(envelope_id)), role))
    return answer(found.plain())


MOST_ENVELOPES = 1000
"""Envelopes that one request may name. More make a transaction long, which others wait for; filters name any number."""

Login = Annotated[str, Field(min_length=1, max_length=255)]
Index = Annotated[int, Field(ge=0, le=2**53)]


class _OfEnvelopes(Action):
    """The parked parts that an action is about."""

    right = Right.OPERATOR

    envelope_id: Annotated[list[UUID], Field(min_length=1, max_length=MOST_ENVELOPES)]
    role: Login | None = None
    event: Annotated[str, Field(max_length=64)] | None = None
    item: Index | None = None

    def find(self, connection: Connection) -> list[tuple[Past, Parked]]:
        """Find them.

        Raises:
            Refused: one of the envelopes is not parked (``not_parked``), or more is named than one item.
        """
        if self.item is not None and len(self.envelope_id) > 1:
            raise Refused("an item is one of one envelope", "name one envelope", code="bad_request")
        found = []
        for envelope_id in dict.fromkeys(self.envelope_id):
            past, parts = find_meant(connection, envelope_id, self.role, self.event, self.item)
            found += [(past, parked) for parked in parts]
        return found


class ResumeParked(_OfEnvelopes):
    """Deliver parked envelopes or items again, and count their attempts anew: all that are named, or none."""

    path: ClassVar[str] = "parked/resume"
    title: ClassVar[str] = "Resume"
    words = "parked resume {envelope_id} --role={role} --event={event} --item={item} --reason={reason}"

    reason: OptionalReason = ""

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(self.find)
        return (f"{parked.role} gets {parts_of(parked)} again." for _, parked in found)

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        ids = Ids(bus.clock)
        with bus.writing() as connection:
            decision = bus.decision(self.reason)
            done = [resume(connection, past, parked, decision, ids) for past, parked in self.find(connection)]
        return (sentence for each in done for sentence in resumed_sentences(each))


class DropParked(_OfEnvelopes):
    """Drop everything parked of envelopes for good: their roles go without it."""

    path: ClassVar[str] = "parked/drop"
    title: ClassVar[str] = "Drop for good"
    words = "parked drop {envelope_id} --role={role} --event={event} --item={item} --reason={reason}"
    is_final: ClassVar[bool] = True

    reason: Reason

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(self.find)
        return (f"{parked.role} goes without {parts_of(parked)}, for good." for _, parked in found)

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            decision = bus.decision(self.reason)
            found = [parked for _, parked in self.find(connection)]
            for parked in found:
                drop(connection, parked, decision)
        return (f"{parked.role} goes without {parts_of(parked)}." for parked in found)


class ResumeAllParked(Action):
    """Resume everything parked that matches the filters."""

    path: ClassVar[str] = "parked/resume-all"
    title: ClassVar[str] = "Resume all of them"
    words = "parked resume --all --role={role} --code={code} --type={type} --service={service} --reason={reason}"
    right = Right.OPERATOR

    role: Login | None = None
    code: Annotated[str, Field(max_length=255)] | None = None
    type: Annotated[str, Field(max_length=255)] | None = None
    service: Annotated[str, Field(max_length=255)] | None = None
    reason: OptionalReason = ""

    def filters(self) -> Filters:
        """Make the filters of the journal."""
        return Filters(self.role, self.service, self.type, self.code)

    def preview(self, bus: BusAccess) -> Iterator[str]:
        groups = bus.read(lambda connection: count_parked_groups(connection, self.filters()))
        if not groups:
            raise Refused("nothing parked matches", "go back to the list", code="not_parked")
        return (
            f"{group.role} gets {_numbers(group.envelopes, group.items)} again that failed with {group.code}."
            for group in groups
        )

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        newest = bus.read(lambda connection: list_parked(connection, self.filters(), 1))
        if not newest:
            raise Refused("nothing parked matches", "go back to the list", code="not_parked")
        # Parts that are parked again from now on are not resumed once more.
        filters = replace(self.filters(), until=newest[0].since)
        with bus.acting():
            decision = bus.decision(self.reason)
            done = resume_all(bus.config.database.url, filters, decision, Ids(bus.clock))
        yield f"Resumed {_numbers(done.envelopes, done.items)}."
        yield from (f"{refusal}." for refusal in done.refusals)


class CorrectItem(Action):
    """Replace an item for all roles that lack it, or for one role for which it is parked.

    The value is JSON, and is packed as the item was; where the item is a text, it is the new text.
    """

    path: ClassVar[str] = "parked/correct"
    title: ClassVar[str] = "Correct"
    words = (
        "parked correct {envelope_id} --event={event} --item={item} --value={value} --role={role} --reason={reason} "
        "--resume={resume}"
    )
    right = Right.OPERATOR

    envelope_id: UUID
    event: Annotated[str, Field(max_length=64)] | None = None
    item: Index
    role: Login | None = None
    value: Annotated[str, asked("text", "Value", "The new item: as JSON, or as the text that it is.")]
    reason: Reason
    resume: Annotated[bool, asked("check", "Resume it at once", "for all roles for which it is parked")] = False

    def typed(self, bus: BusAccess) -> Mapping[str, str]:
        with bus.reading() as connection:
            target = find_target(connection, self.envelope_id, self.role, self.event, self.item)
            standing = read_standing(connection, target)
        payload = standing.payload(target.role_id)
        value = payload.editable()
        # Marks of direction would show the value otherwise than it is.
        return {"value": value if payload.kind is Kind.TEXT else escaped(value)}

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            target = find_target(connection, self.envelope_id, self.role, self.event, self.item)
            reach = read_reach(connection, target)
        yield corrected_sentence(target, done=False)
        yield from reach_sentences(target, reach)

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            target = find_target(connection, self.envelope_id, self.role, self.event, self.item)
            standing = read_standing(connection, target)
            after = standing.payload(target.role_id).rewritten(self.value)
            check_size(after, bus.config.front.max_item_bytes)
            reach = read_reach(connection, target)
            decision = bus.decision(self.reason)
            correct(connection, target, standing, after, decision)
            ids = Ids(bus.clock)
            resumed = [resume_place(connection, place, decision, ids) for place in target.places if self.resume]
        yield corrected_sentence(target, done=True)
        yield from reach_sentences(target, reach)
        for each in resumed:
            yield from resumed_sentences(each)


def _numbers(envelopes: int, items: int) -> str:
    told = [counted(envelopes, "envelope")] * (envelopes > 0 or not items)
    return " and ".join(told + [f"{counted(items)} that were parked alone"] * (items > 0))


batch_pages = APIRouter(prefix="/batches")

SHOWN_BATCHES = 100
"""The newest batches of the list. More make the page long."""

SHOWN_EVENTS = 1000
"""Events of a batch that its page names. More make the page long."""


@batch_pages.get("")
def list_batches(bus: TheBus, page: ThePage, subscription: Annotated[Name | None, Query()] = None) -> HTMLResponse:
    """Show the batches that are parked, the newest first."""
    found = bus.read(lambda connection: list_parked_batches(connection, subscription, SHOWN_BATCHES + 1))
    is_cut = len(found) > SHOWN_BATCHES
    return page("batches/list.html", found=found[:SHOWN_BATCHES], is_cut=is_cut, subscription=subscription)


@batch_pages.get("/{batch}")
def show_batch(bus: TheBus, page: ThePage, batch: str) -> HTMLResponse:
    """Show a batch: why it is parked, and the events in it."""
    with bus.reading() as connection:
        found = find_parked_batch(connection, batch)
        events = read_parked_events(connection, found)
    return page("batches/show.html", it=found, events=events[:SHOWN_EVENTS], number=len(events))


batch_api = APIRouter(prefix="/batches", tags=["batches"], default_response_class=ObjectResponse)


@batch_api.get("", operation_id="list_parked_batches")
def list_batches_json(
    bus: TheBus,
    _: TheVisitor,
    subscription: Annotated[Name | None, Query(description="Only of this subscription.")] = None,
    reader: Annotated[Name | None, Query(description="Only of this reader.")] = None,
    limit: Limit = 20,
) -> ObjectResponse:
    """List the batches that subscribers did not take, and those with damaged items, the newest first."""
    found = bus.read(lambda connection: list_parked_batches(connection, subscription, limit, reader=reader))
    return answer_list(map(of_parked_batch, found))


@batch_api.get("/{batch}", operation_id="show_parked_batch")
def show_batch_json(bus: TheBus, _: TheVisitor, batch: Annotated[str, Path(max_length=255)]) -> ObjectResponse:
    """Show a parked batch, with the envelopes in it."""
    with bus.reading() as connection:
        found = find_parked_batch(connection, batch)
        events = read_parked_events(connection, found)
    return answer({**of_parked_batch(found), "envelope_ids": [event.envelope_id for event in events]})


MOST_BATCHES = 1000
"""Batches that one request may name. More make a transaction long, which others wait for."""


class _OfBatches(Action, ABC):
    """The parked batches that an action is about.

    Args:
        batch: ids, or the beginnings of some.
    """

    right = Right.OPERATOR

    batch: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=255)]], Field(min_length=1, max_length=MOST_BATCHES)
    ]

    def find(self, connection: Connection) -> list[ParkedBatch]:
        """Find them.

        Raises:
            Refused: one of them is not parked (``batch_not_parked``), or several begin so (``ambiguous_id``).
        """
        found = [find_parked_batch(connection, each) for each in self.batch]
        return [*{each.id: each for each in found}.values()]


class ResumeBatches(_OfBatches):
    """Have readers get parked batches again, and count their attempts anew: all that are named, or none."""

    path: ClassVar[str] = "batches/resume"
    title: ClassVar[str] = "Resume"
    words = "parked batch resume {batch} --reason={reason}"

    reason: OptionalReason = ""

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(self.find)
        return (f"{each.whose} gets {each.id} again." for each in found)

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            found = self.find(connection)
            for each in found:
                resume_batch(connection, each, bus.decision(self.reason))
        return (f"{each.whose} gets {each.id} again." for each in found)


class DropBatches(_OfBatches):
    """Have readers go without parked batches, for good."""

    path: ClassVar[str] = "batches/drop"
    title: ClassVar[str] = "Drop for good"
    words = "parked batch drop {batch} --reason={reason}"
    is_final: ClassVar[bool] = True

    reason: Reason

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(self.find)
        return (f"{each.whose} goes without {each.id}, for good." for each in found)

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            found = self.find(connection)
            for each in found:
                drop_batch(connection, each, bus.decision(self.reason))
        return (f"{each.whose} goes without {each.id}." for each in found)
