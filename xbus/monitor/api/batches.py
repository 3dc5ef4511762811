"""Parked batches for programs."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from xbus.admin.objects import of_parked_batch
from xbus.broker.journal.readers.parked import find_parked_batch, list_parked_batches, read_parked_events
from xbus.monitor.api.envelopes import Limit
from xbus.monitor.api.objects import ObjectResponse, answer, answer_list
from xbus.monitor.queries import Name
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(prefix="/batches", tags=["batches"], default_response_class=ObjectResponse)


@router.get("", operation_id="list_parked_batches")
def list_(
    bus: TheBus,
    _: TheVisitor,
    subscription: Annotated[Name | None, Query(description="Only of this subscription.")] = None,
    reader: Annotated[Name | None, Query(description="Only of this reader.")] = None,
    limit: Limit = 20,
) -> ObjectResponse:
    """List the batches that subscribers did not take, and those with damaged items, the newest first."""
    with bus.reading() as connection:
        found = list_parked_batches(connection, subscription, limit, reader=reader)
    return answer_list(map(of_parked_batch, found))


@router.get("/{batch}", operation_id="show_parked_batch")
def show(bus: TheBus, _: TheVisitor, batch: Annotated[str, Path(max_length=255)]) -> ObjectResponse:
    """Show a parked batch, with the envelopes in it."""
    with bus.reading() as connection:
        found = find_parked_batch(connection, batch)
        events = read_parked_events(connection, found)
    return answer({**of_parked_batch(found), "envelope_ids": [event.envelope_id for event in events]})
