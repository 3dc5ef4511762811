"""Envelopes for programs."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from xbus.admin.objects import of_chain_link, of_envelope, of_envelope_detail, of_finding
from xbus.admin.search.items import read_items_page
from xbus.broker.journal.operations.envelopes.chains import read_chain
from xbus.broker.journal.operations.envelopes.details import envelope_unknown, read_position, show_envelope
from xbus.broker.journal.operations.envelopes.listing import list_envelopes
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.monitor.api.objects import ObjectResponse, answer, answer_list
from xbus.monitor.queries import EnvelopeQuery
from xbus.monitor.reading import digits_of
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(prefix="/envelopes", tags=["envelopes"], default_response_class=ObjectResponse)

Id = Annotated[str, Path(description="The id of an envelope, or 4 or more digits with which only this one begins.")]
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.get("", operation_id="list_envelopes")
def list_(bus: TheBus, _: TheVisitor, query: Annotated[EnvelopeQuery, Query()]) -> ObjectResponse:
    """List envelopes, the newest first."""
    with bus.reading() as connection:
        before = resolve_envelope(connection, digits_of(query.before)) if query.before else None
        found = list_envelopes(connection, query.filters(), before, query.limit)
    return answer_list(map(of_envelope, found), {"before": found[-1].id} if len(found) == query.limit else None)


@router.get("/{envelope_id}", operation_id="show_envelope")
def show(bus: TheBus, _: TheVisitor, envelope_id: Id) -> ObjectResponse:
    """Show one envelope: its events, its state at each consumer, and failed calls."""
    with bus.reading() as connection:
        wanted = resolve_envelope(connection, digits_of(envelope_id))
        detail = show_envelope(connection, wanted)
    if detail is None:
        raise envelope_unknown(wanted)
    return answer(of_envelope_detail(detail))


@router.get("/{envelope_id}/items", operation_id="list_items")
def items(
    bus: TheBus,
    _: TheVisitor,
    envelope_id: Id,
    event: Annotated[str | None, Query(max_length=64, description="Begin with this event, by number or id.")] = None,
    first: Annotated[int, Query(alias="from", ge=0, le=2**53, description="Begin with this item of it.")] = 0,
    limit: Limit = 20,
) -> ObjectResponse:
    """List the items of an envelope, as its emitter sent them."""
    with bus.reading() as connection:
        wanted = resolve_envelope(connection, digits_of(envelope_id))
        page = read_items_page(connection, wanted, read_position(connection, wanted), event, first, limit)
    found = [item.plain() for item in page.items]
    return answer_list(found, None if page.next_event is None else {"event": page.next_event, "from": page.next_index})


@router.get("/{envelope_id}/trace", operation_id="trace_envelope")
def trace(bus: TheBus, _: TheVisitor, envelope_id: Id) -> ObjectResponse:
    """List what an envelope was made of, itself, and what was made of it."""
    with bus.reading() as connection:
        wanted = resolve_envelope(connection, digits_of(envelope_id))
        found = read_chain(connection, wanted)
    if not found:
        raise envelope_unknown(wanted)
    return answer_list(map(of_chain_link, found))


@router.get("/{envelope_id}/why", operation_id="explain_envelope")
def why(bus: TheBus, _: TheVisitor, envelope_id: Id) -> ObjectResponse:
    """Explain where an envelope is, or why there is none of this id."""
    return answer_list(map(of_finding, bus.inquiry().by_id(digits_of(envelope_id))))
