"""Envelopes: the list with its filters, one envelope with its way through the bus, and the search in items."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from xbus.admin.chains import in_tree, told_way
from xbus.admin.commands import envelope
from xbus.admin.commands.why import trace
from xbus.admin.objects import of_finding
from xbus.admin.search import read_items_page, search_items
from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.operations.envelopes.chains import read_chain
from xbus.broker.journal.operations.envelopes.details import read_position, resolve_envelope, show_envelope
from xbus.broker.journal.operations.envelopes.listing import EnvelopeFilters, list_envelopes
from xbus.broker.journal.operations.why.envelopes import find_subject
from xbus.monitor.actions import QueryForm, query_of, serve_answer
from xbus.monitor.drawings.graphs import draw_chain
from xbus.monitor.queries import ItemQuery, are_digits, digits_of
from xbus.monitor.rendering import TheActor, TheBus, ThePage, TheVisitor, link
from xbus.monitor.rest import ObjectResponse, answer_list
from xbus.states import EnvelopeState

router = APIRouter(prefix="/envelopes")

PAGE_ITEMS = 20
"""Items of a page. More make it long; one may have megabytes, of which only the beginning is shown."""

SHOWN_LINKS = 100
"""Envelopes of a chain in the table. More make the page long; the command shows all."""


PAGE_ROWS = 50

EnvelopeQuery: TypeAlias = Annotated[QueryForm, Depends(query_of(envelope.list_, limit=PAGE_ROWS))]


@router.get("")
def list_(bus: TheActor, page: ThePage, query: EnvelopeQuery) -> HTMLResponse:
    """Show envelopes, the newest first."""
    seen, in_use = query.ask(bus), bus.read(read_stored).in_use
    names = {
        section.name: sorted(in_use.section(section)) for section in (Section.EVENT_TYPE, Section.EMITTER, Section.ROLE)
    }
    more = query.further("/envelopes", seen)
    return page(
        "envelopes/list.html", found=seen.found, query=query, names=names, states=list(EnvelopeState), more=more
    )


@router.get("/find")
def find(bus: TheBus, _: TheVisitor, text: str = "") -> Response:
    """Lead to the envelope with this id or key, or with this event; else offer to look into items."""
    wanted = text.strip()
    with bus.reading() as connection:
        # A key may look like an id.
        subject = find_subject(connection, digits_of(wanted)) if are_digits(wanted) else None
        if subject is not None:
            return RedirectResponse(f"/envelopes/{subject[0]}", 303)
        keyed = list_envelopes(connection, EnvelopeFilters(key=wanted), None, 2) if wanted else []
    if len(keyed) == 1:
        return RedirectResponse(f"/envelopes/{keyed[0].id}", 303)
    return RedirectResponse(link("/envelopes", key=wanted) if keyed else link("/items", text=wanted), 303)


@router.get("/{digits}")
def show(bus: TheBus, page: ThePage, digits: str) -> Response:
    """Show an envelope: why it is where it is, its way through roles, its events, failures and first items."""
    with bus.reading() as connection:
        envelope_id = resolve_envelope(connection, digits_of(digits))
        detail = show_envelope(connection, envelope_id)
        links = [] if detail is None else read_chain(connection, envelope_id)
    if detail is None:
        findings = bus.inquiry().by_id(envelope_id.hex)
        return page("envelopes/absent.html", status=404, envelope_id=envelope_id, findings=findings)
    findings = bus.inquiry().envelope(envelope_id)
    by_role = {finding.role: finding for finding in reversed(findings) if finding.role is not None}
    return page(
        "envelopes/show.html",
        detail=detail,
        findings=findings,
        by_role=by_role,
        chain=[*in_tree(links)][:SHOWN_LINKS],
        chain_is_cut=len(links) > SHOWN_LINKS,
        drawing=draw_chain(links, envelope_id) if len(links) > 1 else None,
        told_way=told_way,
    )


@router.get("/{digits}/items")
def items(
    bus: TheBus,
    page: ThePage,
    digits: str,
    event: str = "",
    first: Annotated[int, Query(alias="from", ge=0, le=2**53)] = 0,
) -> HTMLResponse:
    """Show items of an envelope, as its emitter sent them."""
    with bus.reading() as connection:
        envelope_id = resolve_envelope(connection, digits_of(digits))
        position = read_position(connection, envelope_id)
        found = read_items_page(connection, envelope_id, position, event or None, first, PAGE_ITEMS)
    more = None
    if found.next_event is not None:
        more = link(f"/envelopes/{envelope_id}/items", event=found.next_event, **{"from": found.next_index})
    return page("envelopes/items.html", envelope_id=envelope_id, shown=found.items, more=more)


item_pages = APIRouter(prefix="/items")


@item_pages.get("")
def find_items(bus: TheBus, page: ThePage, query: Annotated[ItemQuery, Query()]) -> HTMLResponse:
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


api = APIRouter(prefix="/envelopes", tags=["envelopes"], default_response_class=ObjectResponse)

Id = Annotated[str, Path(description="The id of an envelope, or 4 or more digits with which only this one begins.")]
Limit = Annotated[int, Query(ge=1, le=1000)]


serve_answer(api, "", envelope.list_, "list_envelopes", PAGE_ROWS)
serve_answer(api, "/{envelope_id}", envelope.show, "show_envelope")
serve_answer(api, "/{envelope_id}/items", envelope.items, "list_items")
serve_answer(api, "/{envelope_id}/trace", trace, "trace_envelope")


@api.get("/{envelope_id}/why", operation_id="explain_envelope")
def why(bus: TheBus, _: TheVisitor, envelope_id: Id) -> ObjectResponse:
    """Explain where an envelope is, or why there is none of this id."""
    return answer_list(map(of_finding, bus.inquiry().by_id(digits_of(envelope_id))))


item_api = APIRouter(prefix="/items", tags=["envelopes"], default_response_class=ObjectResponse)


@item_api.get("", operation_id="find_items")
def find_json(bus: TheBus, _: TheVisitor, query: Annotated[ItemQuery, Query()]) -> ObjectResponse:
    """Find items of a type, the newest first. It looks into some thousands of them, and ``next`` goes on behind."""
    result = search_items(bus.config.database.url, query.search(), lambda searched, of: None)
    after = {"below": result.next_below} if result.stopped and result.next_below is not None else None
    return answer_list([item.plain() for item, _ in result.found], after)
