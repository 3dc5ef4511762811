"""Parked batches: the list, and the events in one batch."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.broker.journal.readers.parked import find_parked_batch, list_parked_batches, read_parked_events
from xbus.monitor.queries import Name
from xbus.monitor.requests import TheBus, ThePage

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
