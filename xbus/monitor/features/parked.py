"""Parked envelopes, items and batches: what is parked and why, and the repairs: resume, drop, correct."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse

from xbus.admin.arguments import OPTIONAL_REASON
from xbus.admin.commands import parked
from xbus.admin.commands.parked import CorrectItem, DropBatches, DropParked, ResumeBatches, ResumeParked
from xbus.admin.objects import fields_of
from xbus.admin.output import counted
from xbus.admin.repair.moves import resume_all
from xbus.admin.repair.view import view
from xbus.admin.signatures import BusAction, CommandBus, option
from xbus.broker.journal.operations.envelopes.details import resolve_envelope
from xbus.broker.journal.operations.parked import Filters, count_parked_groups, list_parked
from xbus.broker.journal.readers.parked import find_parked_batch, list_parked_batches, read_parked_events
from xbus.errors import Refused
from xbus.ids import Ids
from xbus.monitor.actions import QueryForm, query_of, serve_answer
from xbus.monitor.queries import Name, digits_of
from xbus.monitor.rendering import TheActor, TheBus, ThePage, TheVisitor
from xbus.monitor.rest import ObjectResponse, answer_list
from xbus.rights import Right

router = APIRouter(prefix="/parked")

PAGE_ROWS = 100


ParkedQuery: TypeAlias = Annotated[QueryForm, Depends(query_of(parked.list_, "limit"))]


@router.get("")
def list_(bus: TheActor, page: ThePage, query: ParkedQuery) -> HTMLResponse:
    """Show what is parked: how much for which role with which code, and the newest of it."""
    groups = bus.read(lambda connection: count_parked_groups(connection, query.fill(Filters)))
    found = query.ask(bus, limit=PAGE_ROWS).found
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


serve_answer(api, "", parked.list_, "list_parked")


@api.get("/groups", operation_id="count_parked")
def groups_json(bus: TheBus, _: TheVisitor, query: ParkedQuery) -> ObjectResponse:
    """Count what is parked, by role and code."""
    found = bus.read(lambda connection: count_parked_groups(connection, query.fill(Filters)))
    return answer_list(map(fields_of, found))


serve_answer(api, "/{envelope_id}", parked.show, "show_parked")


class ResumeAllParked(BusAction):
    """Resume everything parked that matches the filters."""

    path = "parked/resume-all"
    title = "Resume all of them"
    words = "parked resume --all"
    right = Right.OPERATOR

    role: str | None = option("Only for this role.", longest=255)
    code: str | None = option("Only what is parked with this code.", longest=255)
    type: str | None = option("Only envelopes with events of this type.", longest=255)
    service: str | None = option("Only for roles of this service.", longest=255)
    reason: str = OPTIONAL_REASON

    def filters(self) -> Filters:
        """Make the filters of the journal."""
        return Filters(self.role, self.service, self.type, self.code)

    def preview(self, bus: CommandBus) -> Iterator[str]:
        groups = bus.read(lambda connection: count_parked_groups(connection, self.filters()))
        if not groups:
            raise Refused("nothing parked matches", "go back to the list", code="not_parked")
        return (
            f"{group.role} gets {_numbers(group.envelopes, group.items)} again that failed with {group.code}."
            for group in groups
        )

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
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


serve_answer(batch_api, "", parked.list_batches, "list_parked_batches")
serve_answer(batch_api, "/{batch}", parked.show_batch, "show_parked_batch")

ACTIONS = (ResumeParked, DropParked, ResumeAllParked, CorrectItem, ResumeBatches, DropBatches)
