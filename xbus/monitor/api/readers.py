"""Readers for programs."""

from typing import Annotated

from fastapi import APIRouter, Path

from xbus.admin.objects import of_move, of_range, of_reader
from xbus.broker.journal.readers.people import find_reader
from xbus.broker.journal.readers.status import list_moves, list_readers
from xbus.monitor.api.envelopes import Limit
from xbus.monitor.api.objects import ObjectResponse, answer, answer_list
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(prefix="/readers", tags=["readers"], default_response_class=ObjectResponse)


@router.get("", operation_id="list_readers")
def list_(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """List the readers: their places, and how far they lag behind."""
    return answer_list(map(of_reader, bus.read(list_readers)))


@router.get("/{name:path}", operation_id="show_reader")
def show(bus: TheBus, _: TheVisitor, name: Annotated[str, Path(max_length=255)], limit: Limit = 20) -> ObjectResponse:
    """Show a reader: its ranges, who reads them, and the last acts of its history."""
    with bus.reading() as connection:
        entry = find_reader(connection, name)
        (status,) = list_readers(connection, name)
        moves = list_moves(connection, entry.id, limit)
    told = {"range_list": [*map(of_range, status.ranges)], "history": [*map(of_move, moves)]}
    return answer({**of_reader(status), **told})
