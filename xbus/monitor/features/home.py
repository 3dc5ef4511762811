"""The home page: the bus as it is just now, its last weeks, and what needs a decision."""

from collections.abc import Sequence

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, StreamingResponse

from xbus.broker.journal.samples.keeping import read_totals
from xbus.errors import JournalError
from xbus.monitor.bus import BusAccess
from xbus.monitor.drawings.graphs import BusDrawing
from xbus.monitor.drawings.plot import LinePlot
from xbus.monitor.live.decisions import NeededDecision, decisions_of
from xbus.monitor.live.graph import draw_bus
from xbus.monitor.live.plots import RANGES, USUAL, RangeName, draw_plots, parts_of
from xbus.monitor.live.sampler import Sampler
from xbus.monitor.people import NotLoggedIn
from xbus.monitor.rendering import LIVE, TheBus, ThePage, TheParts, TheRange, TheSampler, TheVisitor, visitor_of

router = APIRouter()


@router.get("/")
def home(bus: TheBus, page: ThePage, sampler: TheSampler, shown: TheRange = USUAL) -> HTMLResponse:
    """Show what happens on the bus."""
    return page(
        "home.html",
        decisions=_decisions(sampler),
        trouble=sampler.trouble,
        drawing=_drawing(sampler),
        plots=_plots(bus, shown),
        ranges=RANGES,
        shown=shown,
    )


@router.get(f"{LIVE}/decisions")
def decisions(page: ThePage, sampler: TheSampler) -> HTMLResponse:
    """Show what needs a decision."""
    return page("live/decisions.html", decisions=_decisions(sampler), trouble=sampler.trouble)


@router.get(f"{LIVE}/graph")
def graph(page: ThePage, sampler: TheSampler) -> HTMLResponse:
    """Show the graph of the bus."""
    return page("live/graph.html", drawing=_drawing(sampler))


@router.get(f"{LIVE}/plots")
def plots(bus: TheBus, page: ThePage, shown: TheRange = USUAL) -> HTMLResponse:
    """Show the plots."""
    return page("live/plots.html", plots=_plots(bus, shown))


@router.get("/figures")
def figures(bus: TheBus, page: ThePage, sampler: TheSampler, shown: TheRange = USUAL) -> HTMLResponse:
    """Show graph and plots as tables."""
    range_, now = RANGES[shown], bus.now()
    with bus.reading() as connection:
        samples = read_totals(connection, range_.step, range_.since(now))
    parts = [part for part in parts_of(samples, range_, now) if part.sample is not None]
    return page("figures.html", now_shown=sampler.newest, parts=parts[::-1], ranges=RANGES, shown=shown)


@router.get(LIVE)
async def stream(request: Request, parts: TheParts, visitor: TheVisitor) -> StreamingResponse:
    """Tell an open page of each sample, as server-sent events."""

    async def is_in_force() -> bool:
        try:
            await run_in_threadpool(visitor_of, request, parts)
        except NotLoggedIn:
            return False
        except JournalError:
            pass  # the database is away: that ends no session
        return True

    audience = parts.sampler.audience
    audience.check_room(visitor.person.name)
    events = audience.stream(visitor.person.name, is_in_force)
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _decisions(sampler: Sampler) -> Sequence[NeededDecision] | None:
    return None if sampler.newest is None else decisions_of(sampler.newest)


def _drawing(sampler: Sampler) -> BusDrawing | None:
    return None if sampler.newest is None else draw_bus(sampler.newest)


def _plots(bus: BusAccess, shown: RangeName) -> Sequence[LinePlot]:
    range_, now = RANGES[shown], bus.now()
    with bus.reading() as connection:
        samples = read_totals(connection, range_.step, range_.since(now))
    return draw_plots(samples, range_, now)
