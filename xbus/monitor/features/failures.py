"""Failures: groups of the same trouble, single ones, and a person's moves on both: track, assign, release, comment."""

from functools import partial
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from xbus.admin.commands import failure
from xbus.admin.commands.failure import AssignFailures, CommentFailures, ReleaseFailures, TrackFailures
from xbus.admin.objects import of_failure_group, of_group_detail
from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations import failures
from xbus.broker.journal.people import known_person, list_persons
from xbus.monitor.actions import QueryForm, query_of, serve_answer
from xbus.monitor.features.envelopes import Limit
from xbus.monitor.queries import Before
from xbus.monitor.rendering import TheBus, ThePage, TheVisitor, link
from xbus.monitor.rest import ObjectResponse, answer_list
from xbus.states import TRACKING_MOVES, TrackingState

router = APIRouter(prefix="/failures")

PAGE_ROWS = 50

SET_STATES = [state for state in TrackingState if state is not TrackingState.UNPROCESSED]
"""The states that a person sets."""


GroupQuery: TypeAlias = Annotated[QueryForm, Depends(query_of(failure.list_, "fingerprint", "envelope_id"))]


def _page_of(connection: Connection, query: QueryForm, *names: str) -> failures.GroupPage:
    """List as many groups as one look finds."""
    filters = query.fill(failures.GroupFilters, "role", "code", "state", "owner")
    if filters.owner is not None:
        known_person(connection, filters.owner)
    return query.fill(partial(failures.list_groups, connection, filters, limit=PAGE_ROWS), "before", *names)


@router.get("")
def list_(bus: TheBus, page: ThePage, query: GroupQuery) -> HTMLResponse:
    """Show groups of failures, the one with the newest failure first."""
    with bus.reading() as connection:
        found = _page_of(connection, query)
        persons = [person.name for person in list_persons(connection) if person.disabled_at is None]
        roles = sorted(read_stored(connection).in_use.section(Section.ROLE))
    more = None if found.before is None else link("/failures", **{**query.given(), "before": found.before})
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
    detail = bus.read(lambda connection: failures.show_group(connection, fingerprint, before=before, limit=PAGE_ROWS))
    here = f"/failures/groups/{fingerprint}"
    older = link(here, before=detail.failures[-1].id) if len(detail.failures) == PAGE_ROWS else None
    return page("failures/group.html", detail=detail, it=detail.group, here=here, older=older, states=SET_STATES)


@router.get("/{failure_id:int}")
def show(bus: TheBus, page: ThePage, failure_id: int) -> HTMLResponse:
    """Show a failure: where it happened, the recipient's words, and what people did about it."""
    with bus.reading() as connection:
        detail = failures.show_failure(connection, failure_id)
        if detail is None:
            raise failures.unknown_failure(failure_id)
        group = failures.show_group(connection, detail.summary.fingerprint, limit=1).group
    following = TRACKING_MOVES[detail.summary.tracking]
    return page(
        "failures/show.html",
        detail=detail,
        it=detail.summary,
        group=group,
        states=[state for state in SET_STATES if state in following],
        here=f"/failures/{failure_id}",
    )


api = APIRouter(prefix="/failures", tags=["failures"], default_response_class=ObjectResponse)


serve_answer(api, "", failure.list_, "list_failures")


@api.get("/groups", operation_id="list_failure_groups")
def groups_json(bus: TheBus, _: TheVisitor, query: GroupQuery) -> ObjectResponse:
    """List groups of failures of the same trouble, the one with the newest failure first.

    In a long list some pages have fewer groups than `limit`, or none: `next` is null at the end alone.
    """
    found = bus.read(lambda connection: _page_of(connection, query, "limit"))
    after = None if found.before is None else {"before": found.before}
    return answer_list(map(of_failure_group, found.groups), after)


@api.get("/groups/{fingerprint}", operation_id="show_failure_group")
def show_group_json(
    bus: TheBus, _: TheVisitor, fingerprint: str, before: Before = None, limit: Limit = 20
) -> ObjectResponse:
    """Show a group: its newest failures, and what people did with all of it."""
    detail = bus.read(lambda connection: failures.show_group(connection, fingerprint, before=before, limit=limit))
    return ObjectResponse(of_group_detail(detail))


serve_answer(api, "/{failure_id:int}", failure.show, "show_failure")

ACTIONS = (TrackFailures, AssignFailures, ReleaseFailures, CommentFailures)
