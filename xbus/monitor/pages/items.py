"""The search in items of a type."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.admin.search.finding import search_items
from xbus.broker.journal.configuration import Section, read_stored
from xbus.monitor.queries import ItemQuery
from xbus.monitor.rendering import link
from xbus.monitor.requests import TheBus, ThePage

router = APIRouter(prefix="/items")


@router.get("")
def find(bus: TheBus, page: ThePage, query: Annotated[ItemQuery, Query()]) -> HTMLResponse:
    """Ask for a type and a text, and show the items that fit, the newest first."""
    types = sorted(bus.read(read_stored).in_use.section(Section.EVENT_TYPE))
    if not query.type and len(types) == 1 and query.text:
        query = query.model_copy(update={"type": types[0]})
    result = None
    more = None
    if query.type:
        result = search_items(bus.config.database.url, query.search(), lambda searched, of: None)
        if result.stopped and result.next_below is not None:
            more = link("/items", **{**query.model_dump(), "below": result.next_below})
    shown = [] if result is None else result.found
    return page("envelopes/find.html", query=query, types=types, result=result, shown=shown, more=more)
