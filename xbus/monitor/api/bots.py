"""Bots and their runs for programs."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from xbus.admin.objects import of_bot, of_run
from xbus.broker.journal.operations.bots import list_bots, list_runs, read_run
from xbus.monitor.api.envelopes import Limit
from xbus.monitor.api.objects import ObjectResponse, answer, answer_list
from xbus.monitor.queries import Before, Name
from xbus.monitor.requests import TheBus, TheVisitor
from xbus.states import BotRunState

router = APIRouter(tags=["bots"], default_response_class=ObjectResponse)

RunId = Annotated[int, Path(ge=1, le=2**63 - 1)]


@router.get("/bots", operation_id="list_bots")
def list_(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """List the bots: when each runs next, and how its last run ended."""
    now = bus.now()
    found = bus.read(lambda connection: list_bots(connection, now))
    return answer_list(of_bot(bot, now) for bot in found)


@router.get("/bots/{name:path}", operation_id="show_bot")
def show(bus: TheBus, _: TheVisitor, name: Annotated[str, Path(max_length=255)]) -> ObjectResponse:
    """Show a bot."""
    now = bus.now()
    (found,) = bus.read(lambda connection: list_bots(connection, now, name))
    return answer(of_bot(found, now))


@router.get("/runs", operation_id="list_runs")
def runs(
    bus: TheBus,
    _: TheVisitor,
    bot: Annotated[Name | None, Query(description="Only of this bot.")] = None,
    state: BotRunState | None = None,
    before: Before = None,
    limit: Limit = 20,
) -> ObjectResponse:
    """List runs of bots, the newest first."""
    with bus.reading() as connection:
        found = list_runs(connection, bot, limit, state, before)
    return answer_list(map(of_run, found), {"before": found[-1].id} if len(found) == limit else None)


@router.get("/runs/{run_id}", operation_id="show_run")
def show_run(bus: TheBus, _: TheVisitor, run_id: RunId) -> ObjectResponse:
    """Show a run, with the end of what its last attempt printed."""
    found = bus.read(lambda connection: read_run(connection, run_id))
    return answer({**of_run(found), "log": found.log})
