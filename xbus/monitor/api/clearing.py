"""Items that consumers keep for a person, for programs."""

from typing import Annotated

from fastapi import APIRouter, Query

from xbus.admin.objects import of_clearing_item
from xbus.admin.repair.masking import mask_details
from xbus.admin.repair.payload import Payload, as_json
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.monitor.api.envelopes import Limit
from xbus.monitor.api.objects import ObjectResponse, answer
from xbus.monitor.clearing import ClearingDesk
from xbus.monitor.queries import ClearingQuery, ItemId
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(prefix="/clearing", tags=["clearing"], default_response_class=ObjectResponse)


@router.get("", operation_id="list_clearing")
def list_(bus: TheBus, _: TheVisitor, query: Annotated[ClearingQuery, Query()], limit: Limit = 20) -> ObjectResponse:
    """List items of all consumers, the newest of each first. ``errors`` names the databases that can't be read."""
    listed = ClearingDesk(bus.config).list_items(query.wanted_state, query.type or None, query.before, limit)
    secrets = bus.read(read_secret_fields)
    found = [
        of_clearing_item(item, Payload.of(item.data, secrets.get(item.type or "", frozenset())).plain, database)
        for item, database in listed.items
    ]
    errors = [{"code": error.code, "cause": error.cause, "next_step": error.next_step} for error in listed.errors]
    after = None if listed.below is None else {"before": listed.below}
    return answer({"found": found, "next": after, "errors": errors})


@router.get("/{request_type}/{item_id}", operation_id="show_clearing")
def show(bus: TheBus, _: TheVisitor, request_type: str, item_id: ItemId) -> ObjectResponse:
    """Show what a consumer says about an item."""
    secrets = bus.read(read_secret_fields)
    details = ClearingDesk(bus.config).details(request_type, item_id)
    return answer({"details": [as_json(each) for each in mask_details(details, secrets)]})
