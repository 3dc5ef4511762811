"""Parked work for programs."""

from typing import Annotated

from fastapi import APIRouter, Query

from xbus.admin.objects import of_parked_part
from xbus.admin.repair.view import view
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.parked_list import ParkedGroup, count_parked_groups, list_parked
from xbus.monitor.api.envelopes import Id, Limit
from xbus.monitor.api.objects import ObjectResponse, answer, answer_list
from xbus.monitor.queries import ParkedQuery
from xbus.monitor.reading import digits_of
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(prefix="/parked", tags=["parked"], default_response_class=ObjectResponse)


@router.get("", operation_id="list_parked")
def list_(bus: TheBus, _: TheVisitor, query: Annotated[ParkedQuery, Query()], limit: Limit = 20) -> ObjectResponse:
    """List parked envelopes and items, the newest first."""
    with bus.reading() as connection:
        found = list_parked(connection, query.filters(), limit)
    return answer_list(map(of_parked_part, found))


@router.get("/groups", operation_id="count_parked")
def groups(bus: TheBus, _: TheVisitor, query: Annotated[ParkedQuery, Query()]) -> ObjectResponse:
    """Count what is parked, by role and code."""
    with bus.reading() as connection:
        found = count_parked_groups(connection, query.filters())
    return answer_list(map(_of_group, found))


@router.get("/{envelope_id}", operation_id="show_parked")
def show(
    bus: TheBus, _: TheVisitor, envelope_id: Id, role: Annotated[str | None, Query(max_length=255)] = None
) -> ObjectResponse:
    """Show a parked envelope: for whom, why, and the items that failures name."""
    with bus.reading() as connection:
        found = view(connection, resolve_envelope(connection, digits_of(envelope_id)), role)
    return answer(found.plain())


def _of_group(group: ParkedGroup) -> dict[str, object]:
    return {
        "role": group.role,
        "service": group.service,
        "code": group.code,
        "envelopes": group.envelopes,
        "items": group.items,
        "cause": group.cause,
        "oldest_at": group.oldest_at,
    }
