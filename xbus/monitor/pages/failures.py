"""Failures: groups of the same trouble, one group, and one failure with its history."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.operations.failures import list_groups, show_failure, show_group, unknown_failure
from xbus.broker.journal.people import known_person, list_persons
from xbus.monitor.queries import Before, FailureQuery
from xbus.monitor.rendering import link
from xbus.monitor.requests import TheBus, ThePage
from xbus.states import TRACKING_MOVES, TrackingState

router = APIRouter(prefix="/failures")

PAGE_ROWS = 50

SET_STATES = [state for state in TrackingState if state is not TrackingState.UNPROCESSED]
"""The states that a person sets."""


@router.get("")
def list_(bus: TheBus, page: ThePage, query: Annotated[FailureQuery, Query()]) -> HTMLResponse:
    """Show groups of failures, the one with the newest failure first."""
    with bus.reading() as connection:
        if query.owner:
            known_person(connection, query.owner)
        found = list_groups(connection, query.filters(), before=query.before, limit=PAGE_ROWS)
        persons = [person.name for person in list_persons(connection) if person.disabled_at is None]
        roles = sorted(read_stored(connection).in_use.section(Section.ROLE))
    more = None if found.before is None else link("/failures", **{**query.model_dump(), "before": found.before})
    return page(
        "failures/list.html",
        found=found.groups,
        query=query,
        roles=roles,
        persons=persons,
        states=list(TrackingState),
        more=more,
        page_rows=PAGE_ROWS,
    )


@router.get("/groups/{fingerprint}")
def show_one_group(bus: TheBus, page: ThePage, fingerprint: str, before: Before = None) -> HTMLResponse:
    """Show a group: how many and since when, its newest failures, and what people did with all of it."""
    with bus.reading() as connection:
        detail = show_group(connection, fingerprint, before=before, limit=PAGE_ROWS)
    here = f"/failures/groups/{fingerprint}"
    older = link(here, before=detail.failures[-1].id) if len(detail.failures) == PAGE_ROWS else None
    return page("failures/group.html", detail=detail, it=detail.group, here=here, older=older, states=SET_STATES)


@router.get("/{failure_id:int}")
def show(bus: TheBus, page: ThePage, failure_id: int) -> HTMLResponse:
    """Show a failure: where it happened, the recipient's words, and what people did about it."""
    with bus.reading() as connection:
        detail = show_failure(connection, failure_id)
        if detail is None:
            raise unknown_failure(failure_id)
        group = show_group(connection, detail.summary.fingerprint, limit=1).group
    following = TRACKING_MOVES[detail.summary.tracking]
    return page(
        "failures/show.html",
        detail=detail,
        it=detail.summary,
        group=group,
        states=[state for state in SET_STATES if state in following],
        here=f"/failures/{failure_id}",
    )
