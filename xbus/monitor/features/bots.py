"""Bots: their next slots, their runs and what these printed, and the acts of a person: fire, release."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse

from xbus.admin.commands import bot
from xbus.admin.commands.bot import FireBot, ReleaseBot
from xbus.admin.objects import of_run
from xbus.broker.journal.configuration import Section
from xbus.broker.journal.operations.bots import BotRunStatus, list_bots, list_runs, read_run, show_run
from xbus.monitor.actions import serve_answer
from xbus.monitor.features.entries import read_entry
from xbus.monitor.rendering import LIVE, TheBus, ThePage, TheVisitor
from xbus.monitor.rest import ObjectResponse
from xbus.states import BotRunState

router = APIRouter()

SHOWN_RUNS = 50
"""Runs of a bot at first. More make the page long."""

Runs = Annotated[int, Query(ge=1, le=1000)]
RunId = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


@router.get(f"{LIVE}/bots")
@router.get("/bots")
def list_(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show the bots: when each runs next, and how its last run ended."""
    bots = bus.read(lambda connection: list_bots(connection, bus.now()))
    return page("bots/list.html", bots=bots)


@router.get(f"{LIVE}/bot")
def state(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show how a bot is, and its newest runs; its page asks for this again and again."""
    with bus.reading() as connection:
        (bot,) = list_bots(connection, bus.now(), name)
        runs = list_runs(connection, name, SHOWN_RUNS)
    return page("bots/now.html", it=bot, runs=runs, is_cut=len(runs) == SHOWN_RUNS)


@router.get("/bots/{name:path}")
def show(
    bus: TheBus, page: ThePage, name: str, run: RunId = None, runs: Runs = SHOWN_RUNS, state: BotRunState | None = None
) -> HTMLResponse:
    """Show a bot: what it does, its runs, and what one of them printed."""
    with bus.reading() as connection:
        (bot,) = list_bots(connection, bus.now(), name)
        shown = read_entry(connection, Section.BOT, name)
        found = list_runs(connection, name, runs, state)
        chosen: BotRunStatus | None = None
        if run is not None or bot.last is not None:
            chosen = show_run(connection, name, run)
    return page(
        "bots/show.html",
        it=bot,
        shown=shown,
        settings=shown.stored.in_use.bots[name].settings,
        runs=found,
        chosen=chosen,
        is_cut=len(found) == runs < 1000,
        state_wanted=state,
        # What is filtered, or further back, stays as it is.
        is_live=state is None and runs == SHOWN_RUNS,
    )


api = APIRouter(tags=["bots"], default_response_class=ObjectResponse)

RunPath = Annotated[int, Path(ge=1, le=2**63 - 1)]


serve_answer(api, "/bots", bot.list_, "list_bots")
serve_answer(api, "/bots/{name:path}", bot.show, "show_bot")
serve_answer(api, "/runs", bot.runs, "list_runs")


@api.get("/runs/{run_id}", operation_id="show_run")
def show_run_json(bus: TheBus, _: TheVisitor, run_id: RunPath) -> ObjectResponse:
    """Show a run, with the end of what its last attempt printed."""
    found = bus.read(lambda connection: read_run(connection, run_id))
    return ObjectResponse({**of_run(found), "log": found.log})


ACTIONS = (FireBot, ReleaseBot)
