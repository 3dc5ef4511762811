"""Clearing: items that consumers keep for a person, and one of them with the form that clears it."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.admin.repair.masking import mask_details
from xbus.admin.repair.payload import Payload
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.errors import XbusError
from xbus.monitor.clearing import ClearingDesk, ClearingList
from xbus.monitor.problems import status_of
from xbus.monitor.queries import ClearingQuery, ItemId
from xbus.monitor.rendering import link
from xbus.monitor.requests import TheBus, ThePage

router = APIRouter(prefix="/clearing")

PAGE_ROWS = 50


@router.get("")
def list_(bus: TheBus, page: ThePage, query: Annotated[ClearingQuery, Query()]) -> HTMLResponse:
    """Show the items that wait, the newest of each consumer first."""
    desk = ClearingDesk(bus.config)
    if not desk.is_open:
        return page("clearing/closed.html")
    try:
        found = desk.list_items(query.wanted_state, query.type or None, query.before, PAGE_ROWS)
    except XbusError as error:
        found = ClearingList([], [error], None)
        return page("clearing/list.html", status=status_of(error), found=found, shown=[], query=query, more=None)
    secrets = bus.read(read_secret_fields)
    shown = [
        (item, database, Payload.of(item.data, secrets.get(item.type or "", frozenset())))
        for item, database in found.items
    ]
    more = None if found.below is None else link("/clearing", **{**query.model_dump(), "before": found.below})
    return page("clearing/list.html", found=found, shown=shown, query=query, more=more)


@router.get("/{request_type}/{item_id}")
def show(bus: TheBus, page: ThePage, request_type: str, item_id: ItemId) -> HTMLResponse:
    """Show what the consumer says about an item."""
    secrets = bus.read(read_secret_fields)
    details = ClearingDesk(bus.config).details(request_type, item_id)
    return page(
        "clearing/show.html",
        details=mask_details(details, secrets),
        request_type=request_type,
        item_id=item_id,
        here=f"/clearing/{quote(request_type, safe='')}/{item_id}",
    )
