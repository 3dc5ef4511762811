"""Parked batches: what is in them, and the repairs: have readers get them again, or go without."""

from abc import ABC
from collections.abc import Iterator
from typing import Annotated, ClassVar

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse
from pydantic import Field

from xbus.admin.objects import of_parked_batch
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.people import Right
from xbus.broker.journal.readers.parked import (
    ParkedBatch,
    drop_batch,
    find_parked_batch,
    list_parked_batches,
    read_parked_events,
    resume_batch,
)
from xbus.monitor.actions import Action, OptionalReason, Reason
from xbus.monitor.bus import BusAccess
from xbus.monitor.features.envelopes import Limit
from xbus.monitor.people import Visitor
from xbus.monitor.queries import Name
from xbus.monitor.rendering import TheBus, ThePage, TheVisitor
from xbus.monitor.rest import ObjectResponse, answer, answer_list

router = APIRouter(prefix="/batches")

SHOWN_BATCHES = 100
"""The newest batches of the list. More make the page long."""

SHOWN_EVENTS = 1000
"""Events of a batch that its page names. More make the page long."""


@router.get("")
def list_(bus: TheBus, page: ThePage, subscription: Annotated[Name | None, Query()] = None) -> HTMLResponse:
    """Show the batches that are parked, the newest first."""
    with bus.reading() as connection:
        found = list_parked_batches(connection, subscription, SHOWN_BATCHES + 1)
    is_cut = len(found) > SHOWN_BATCHES
    return page("batches/list.html", found=found[:SHOWN_BATCHES], is_cut=is_cut, subscription=subscription)


@router.get("/{batch}")
def show(bus: TheBus, page: ThePage, batch: str) -> HTMLResponse:
    """Show a batch: why it is parked, and the events in it."""
    with bus.reading() as connection:
        found = find_parked_batch(connection, batch)
        events = read_parked_events(connection, found)
    return page("batches/show.html", it=found, events=events[:SHOWN_EVENTS], number=len(events))


api = APIRouter(prefix="/batches", tags=["batches"], default_response_class=ObjectResponse)


@api.get("", operation_id="list_parked_batches")
def list_json(
    bus: TheBus,
    _: TheVisitor,
    subscription: Annotated[Name | None, Query(description="Only of this subscription.")] = None,
    reader: Annotated[Name | None, Query(description="Only of this reader.")] = None,
    limit: Limit = 20,
) -> ObjectResponse:
    """List the batches that subscribers did not take, and those with damaged items, the newest first."""
    with bus.reading() as connection:
        found = list_parked_batches(connection, subscription, limit, reader=reader)
    return answer_list(map(of_parked_batch, found))


@api.get("/{batch}", operation_id="show_parked_batch")
def show_json(bus: TheBus, _: TheVisitor, batch: Annotated[str, Path(max_length=255)]) -> ObjectResponse:
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

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            found = self.find(connection)
            for each in found:
                resume_batch(connection, each, decision_of(bus.clock, self.reason))
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

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            found = self.find(connection)
            for each in found:
                drop_batch(connection, each, decision_of(bus.clock, self.reason))
        return (f"{each.whose} goes without {each.id}." for each in found)
