"""Readers and subscriptions: their lag, ranges, programs and history, and the moves of a person."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.admin.commands import reader
from xbus.admin.commands.reader import MergeRanges, MoveReader, SplitRange, UndoMove
from xbus.admin.commands.subscription import ResumeSubscription
from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.readers.parked import list_parked_batches
from xbus.broker.journal.readers.people import find_reader
from xbus.broker.journal.readers.status import MOST_COUNTED_EVENTS, list_moves, list_readers
from xbus.broker.journal.writes import PauseKind
from xbus.monitor.actions import serve_answer
from xbus.monitor.features.entries import read_entry
from xbus.monitor.rendering import LIVE, TheBus, ThePage
from xbus.monitor.rest import ObjectResponse

router = APIRouter()

SHOWN_MOVES = 50
"""Acts of the history at first. More make the page long."""

SHOWN_BATCHES = 20
"""Parked batches of a subscription. More make the page long; the list of batches has them."""

Moves = Annotated[int, Query(ge=1, le=1000)]


@router.get(f"{LIVE}/readers")
@router.get("/readers")
def list_(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show the readers: how far they are, and who reads."""
    readers = bus.read(list_readers)
    return page("readers/list.html", readers=readers, most=MOST_COUNTED_EVENTS)


@router.get(f"{LIVE}/reader")
def ranges(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show the ranges of a reader; its page asks for this again and again."""
    with bus.reading() as connection:
        find_reader(connection, name)
        (reader,) = list_readers(connection, name)
    return page("readers/ranges.html", reader=reader, most=MOST_COUNTED_EVENTS)


@router.get("/readers/{name:path}")
def show(bus: TheBus, page: ThePage, name: str, moves: Moves = SHOWN_MOVES) -> HTMLResponse:
    """Show a reader: what it reads, its ranges, who reads for it, and the history of its places."""
    with bus.reading() as connection:
        entry = find_reader(connection, name)
        (reader,) = list_readers(connection, name)
        shown = None
        batches = list_parked_batches(connection, limit=SHOWN_BATCHES + 1, reader=name)
        if reader.subscriber is not None:
            shown = read_entry(connection, Section.SUBSCRIPTION, reader.subscriber.name)
        elif reader.bot is None:
            # A reader of a bot is no entry of the bus file.
            shown = read_entry(connection, Section.READER, name)
        history = list_moves(connection, entry.id, moves)
        # The page of an entry tells its pause itself; a subscription is paused under the name of its reader.
        pauses = {} if reader.subscriber is None else read_pauses(connection)
        in_use = read_stored(connection).in_use if shown is None else shown.stored.in_use
    return page(
        "readers/show.html",
        reader=reader,
        shown=shown,
        pause=pauses.get((PauseKind.SERVICE, entry.id)),
        roles=sorted(login for login, role in in_use.roles.items() if role.service == name),
        history=history,
        batches=batches[:SHOWN_BATCHES],
        are_more=len(batches) > SHOWN_BATCHES,
        is_cut=len(history) == moves < 1000,
        most=MOST_COUNTED_EVENTS,
    )


api = APIRouter(prefix="/readers", tags=["readers"], default_response_class=ObjectResponse)


serve_answer(api, "", reader.list_, "list_readers")
serve_answer(api, "/{name:path}", reader.show, "show_reader")

ACTIONS = (MoveReader, UndoMove, SplitRange, MergeRanges, ResumeSubscription)
