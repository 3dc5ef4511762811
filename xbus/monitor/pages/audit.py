"""The audit: who did what to the bus, and when."""

import re
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.broker.journal.audit.reading import list_acts
from xbus.broker.journal.configuration import Section
from xbus.monitor.pages.configuration.entries import PLACES
from xbus.monitor.queries import AuditQuery
from xbus.monitor.rendering import link
from xbus.monitor.requests import TheBus, ThePage

router = APIRouter()

PAGE_ROWS = 50

_ENTRY = re.compile(rf'({"|".join(Section)}) "(.+)"', re.DOTALL)


@router.get("/audit")
def list_(bus: TheBus, page: ThePage, query: Annotated[AuditQuery, Query()]) -> HTMLResponse:
    """Show what people and programs did, the newest first."""
    filters = query.filters()
    found = bus.read(lambda connection: list_acts(connection, filters, PAGE_ROWS))
    more = None
    if len(found) == PAGE_ROWS and found[-1].number is not None:
        more = link("/audit", **{**query.model_dump(), "before": found[-1].number})
    return page("audit/list.html", found=found, query=query, more=more, place_of=place_of, words=_words(query))


def place_of(thing: str) -> tuple[str, str] | None:
    """Find the page of an entry of the configuration by its words in the audit: the begin of its address, its name."""
    match = _ENTRY.fullmatch(thing)
    return None if match is None else (PLACES[Section(match[1])], match[2])


def _words(query: AuditQuery) -> list[str]:
    """Give the words of the command that lists the same."""
    options = {"--since": query.since, "--who": query.who, "--action": query.action, "--object": query.object}
    return ["xbus", "audit", "list", *(word for name, value in options.items() if value for word in (name, value))]
