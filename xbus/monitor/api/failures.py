"""Failures for programs: groups of the same trouble, and failures with what people did about them."""

from typing import Annotated

from fastapi import APIRouter, Query

from xbus.admin.objects import of_failure, of_failure_detail, of_failure_group, of_group_detail
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.failures import (
    list_failures,
    list_groups,
    show_failure,
    show_group,
    unknown_failure,
)
from xbus.broker.journal.people import known_person
from xbus.monitor.api.envelopes import Limit
from xbus.monitor.api.objects import ObjectResponse, answer, answer_list
from xbus.monitor.queries import Before, FailureQuery, Name
from xbus.monitor.reading import digits_of
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(prefix="/failures", tags=["failures"], default_response_class=ObjectResponse)


@router.get("", operation_id="list_failures")
def list_(
    bus: TheBus,
    _: TheVisitor,
    query: Annotated[FailureQuery, Query()],
    envelope: Annotated[str, Query(max_length=64, description="Only those of this envelope.")] = "",
    group: Annotated[Name, Query(description="Only those with this fingerprint.")] = "",
    limit: Limit = 20,
) -> ObjectResponse:
    """List failures, the newest first."""
    wanted = query.filters()
    with bus.reading() as connection:
        found = list_failures(
            connection,
            state=wanted.state,
            role=wanted.role,
            code=wanted.code,
            envelope_id=resolve_envelope(connection, digits_of(envelope)) if envelope else None,
            owner=known_person(connection, wanted.owner).name if wanted.owner else None,
            fingerprint=group or None,
            before=query.before,
            limit=limit,
        )
    return answer_list(map(of_failure, found), {"before": found[-1].id} if len(found) == limit else None)


@router.get("/groups", operation_id="list_failure_groups")
def groups(bus: TheBus, _: TheVisitor, query: Annotated[FailureQuery, Query()], limit: Limit = 20) -> ObjectResponse:
    """List groups of failures of the same trouble, the one with the newest failure first.

    In a long list some pages have fewer groups than `limit`, or none: `next` is null at the end alone.
    """
    with bus.reading() as connection:
        if query.owner:
            known_person(connection, query.owner)
        found = list_groups(connection, query.filters(), before=query.before, limit=limit)
    after = None if found.before is None else {"before": found.before}
    return answer_list(map(of_failure_group, found.groups), after)


@router.get("/groups/{fingerprint}", operation_id="show_failure_group")
def show_one_group(
    bus: TheBus, _: TheVisitor, fingerprint: str, before: Before = None, limit: Limit = 20
) -> ObjectResponse:
    """Show a group: its newest failures, and what people did with all of it."""
    with bus.reading() as connection:
        detail = show_group(connection, fingerprint, before=before, limit=limit)
    return answer(of_group_detail(detail))


@router.get("/{failure_id:int}", operation_id="show_failure")
def show(bus: TheBus, _: TheVisitor, failure_id: int) -> ObjectResponse:
    """Show a failure: where it happened, the recipient's words, and what people did about it."""
    with bus.reading() as connection:
        detail = show_failure(connection, failure_id)
    if detail is None:
        raise unknown_failure(failure_id)
    return answer(of_failure_detail(detail))
