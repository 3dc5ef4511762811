"""The search in items, for programs."""

from typing import Annotated

from fastapi import APIRouter, Query

from xbus.admin.search.finding import search_items
from xbus.monitor.api.objects import ObjectResponse, answer_list
from xbus.monitor.queries import ItemQuery
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(prefix="/items", tags=["envelopes"], default_response_class=ObjectResponse)


@router.get("", operation_id="find_items")
def find(bus: TheBus, _: TheVisitor, query: Annotated[ItemQuery, Query()]) -> ObjectResponse:
    """Find items of a type, the newest first. It looks into some thousands of them, and ``next`` goes on behind."""
    result = search_items(bus.config.database.url, query.search(), lambda searched, of: None)
    after = {"below": result.next_below} if result.stopped and result.next_below is not None else None
    return answer_list([item.plain() for item, _ in result.found], after)
