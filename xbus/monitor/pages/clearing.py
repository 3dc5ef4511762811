"""Clearing: items that consumers keep for a person, and one of them with the form that clears it."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict

from xbus.admin.repair.payload import Payload
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.errors import XbusError
from xbus.monitor.clearing import ClearingDesk, ClearingList, without_secrets
from xbus.monitor.problems import status_of
from xbus.monitor.queries import Name
from xbus.monitor.rendering import link
from xbus.monitor.requests import TheBus, ThePage

router = APIRouter(prefix="/clearing")

PAGE_ROWS = 50

ItemId = Annotated[int, Path(ge=-(2**63), le=2**63 - 1)]


class ClearingQuery(BaseModel):
    """Selects items; an empty type selects all."""

    model_config = ConfigDict(extra="ignore")

    state: Literal["new", "old", "cleared", "all"] = "new"
    type: Name = ""
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None


@router.get("")
def list_(bus: TheBus, page: ThePage, query: Annotated[ClearingQuery, Query()]) -> HTMLResponse:
    """Show the items that wait, the newest of each consumer first."""
    desk = ClearingDesk(bus.config)
    if not desk.is_open:
        return page("clearing/closed.html")
    state = None if query.state == "all" else query.state
    try:
        found = desk.list_items(state, query.type or None, query.before, PAGE_ROWS)
    except XbusError as error:
        found = ClearingList([], [error])
        return page("clearing/list.html", status=status_of(error), found=found, shown=[], query=query, more=None)
    with bus.reading() as connection:
        secrets = read_secret_fields(connection)
    shown = [
        (item, database, Payload.of(item.data, secrets.get(item.type or "", frozenset())))
        for item, database in found.items
    ]
    more = None
    if len(shown) == PAGE_ROWS:
        more = link("/clearing", **{**query.model_dump(), "before": shown[-1][0].id})
    return page("clearing/list.html", found=found, shown=shown, query=query, more=more)


@router.get("/{request_type}/{item_id}")
def show(bus: TheBus, page: ThePage, request_type: str, item_id: ItemId) -> HTMLResponse:
    """Show what the consumer says about an item."""
    with bus.reading() as connection:
        secrets = read_secret_fields(connection)
    details = ClearingDesk(bus.config).details(request_type, item_id)
    fields = {field for of_type in secrets.values() for field in of_type}
    return page(
        "clearing/show.html",
        details=without_secrets(details, fields),
        request_type=request_type,
        item_id=item_id,
        here=f"/clearing/{quote(request_type, safe='')}/{item_id}",
    )
