"""Parked work: the groups and the list, and one envelope with the items to repair."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.admin.repair.view import view
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.parked_list import count_parked_groups, list_parked
from xbus.monitor.queries import ParkedQuery
from xbus.monitor.reading import digits_of
from xbus.monitor.requests import TheBus, ThePage

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
