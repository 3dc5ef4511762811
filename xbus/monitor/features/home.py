"""The home page: the bus as it is just now, its last weeks, and what needs a decision."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, StreamingResponse

from xbus.admin.output import counted
from xbus.broker.journal.leadership import KnownBroker
from xbus.broker.journal.samples.attention import MOST_READ, AttentionGroup
from xbus.broker.journal.samples.sample import read_totals
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import JournalError
from xbus.monitor.bus import BusAccess
from xbus.monitor.drawings.graphs import BusDrawing
from xbus.monitor.drawings.plot import LinePlot
from xbus.monitor.live.plots import RANGES, USUAL, RangeName, draw_bus, draw_plots, parts_of
from xbus.monitor.live.sampler import BusNow, Sampler
from xbus.monitor.people import NotLoggedIn
from xbus.monitor.rendering import (
    LIVE,
    TheBus,
    ThePage,
    TheParts,
    TheRange,
    TheSampler,
    TheVisitor,
    link,
    look_visitor_up,
)
from xbus.rpc.messages import HealthProblem
from xbus.states import TrackingState

SHOWN_ELSEWHERE = frozenset({"parked"})
"""Codes of health problems that the list tells in more detail by itself."""

_ABOUT_ROLES = frozenset({"consumer_absent", "owed_too_long", "recipient_silent", "role_behind"})
_ABOUT_FAILURES = frozenset({"role_in_trouble"})


@dataclass(frozen=True, slots=True)
class NeededDecision:
    """A thing that a person should look at.

    Args:
        tone: ``bad`` or ``busy``.
        title: the thing, with its number.
        code: to look up; empty for none.
        cause: a sentence about it.
        next_step: what helps.
        address: the page that shows it; None for none.
        since: when it began; None if nobody knows.
    """

    tone: str
    title: str
    code: str
    cause: str
    next_step: str
    address: str | None
    since: datetime | None


def decisions_of(now: BusNow) -> list[NeededDecision]:
    """List what needs a decision: the worst first."""
    attention = now.attention
    return [
        *_silent(now.health.silent),
        *(_problem(problem) for problem in now.health.problems if problem["code"] not in SHOWN_ELSEWHERE),
        *(_gone(broker, now.at) for broker in now.brokers if broker.is_gone),
        *(_parked(group, "envelope") for group in attention.parked),
        *(_parked(group, "item") for group in attention.parked_items),
        *_beyond("parked work", [*attention.parked, *attention.parked_items], link("/parked")),
        *(_failures(group) for group in attention.failures),
        *_beyond("failures", attention.failures, link("/failures", state=TrackingState.UNPROCESSED.value)),
        *(_left_open(login, stalled.told("envelope"), stalled.since) for login, stalled in attention.open),
        *(
            NeededDecision(
                "busy",
                f"{pause.kind.told.capitalize()} {pause.name} is paused",
                "paused",
                f"{pause.paused_by}: {pause.reason}",
                "resume it when the reason is gone"
                if pause.until is None
                else f"it ends at {pause.until:%Y-%m-%d %H:%MZ}",
                _address_of_paused(pause, {reader.name for reader in now.readers}),
                pause.since,
            )
            for pause in attention.pauses
        ),
    ]


def _silent(sides: Sequence[str]) -> Iterator[NeededDecision]:
    taken = {"front": "nothing is taken from emitters", "back": "nothing is delivered"}
    for side in sides:
        yield NeededDecision(
            "bad",
            f"The {side} does not answer",
            "unreachable",
            f"the {side} of the broker can't be reached, so {taken[side]}",
            "see whether it runs, and what its log says; start_xbusbroker starts it, and it goes on where it stopped",
            None,
            None,
        )


def _gone(broker: KnownBroker, now: datetime) -> NeededDecision:
    return NeededDecision(
        "bad",
        f"The broker {broker.place.name} is gone",
        "broker_gone",
        "it neither leads nor stands by for another one",
        "see whether it runs, and what its log says; a day after its end it is forgotten",
        link("/figures"),
        now - timedelta(seconds=broker.looked),
    )


def _problem(problem: HealthProblem) -> NeededDecision:
    about, since = problem.get("about", ""), problem["since"]
    address = None
    if about and problem["code"] in _ABOUT_ROLES:
        address = _address_of("role", about)
    elif about and problem["code"] in _ABOUT_FAILURES:
        address = link("/failures", role=about)
    return NeededDecision(
        "bad",
        problem["code"].replace("_", " ").capitalize(),
        problem["code"],
        problem["cause"],
        problem["next_step"],
        address,
        None if since is None else datetime.fromisoformat(since),
    )


def _parked(group: AttentionGroup, what: str) -> NeededDecision:
    return NeededDecision(
        "bad",
        f"{counted(group.number, what, at_least=group.at_least)} parked for {group.role}",
        group.code,
        f"parked with the code {group.code}",
        "see why, then resume, correct or drop",
        link("/parked", role=group.role, code=group.code),
        group.since,
    )


def _failures(group: AttentionGroup) -> NeededDecision:
    at = f" at {group.role}" if group.role is not None else ""
    number = counted(group.number, "failure", at_least=group.at_least)
    return NeededDecision(
        "busy",
        f"{number}{at} that nobody has looked at",
        group.code,
        f"calls failed with {group.code}",
        "look at one, and say how far you are with it",
        link("/failures", state=TrackingState.UNPROCESSED.value, role=group.role, code=group.code),
        group.since,
    )


def _beyond(what: str, groups: Sequence[AttentionGroup], address: str) -> Iterator[NeededDecision]:
    """Tell once where more exists than was read, as groups of it may be missing."""
    if any(group.at_least for group in groups):
        cause = f"{MOST_READ:,} of a kind were looked at, and more exist"
        next_step = "the list has all of them"
        yield NeededDecision(
            "busy", f"More {what} than is counted here", "not_counted", cause, next_step, address, None
        )


def _left_open(login: str, told: str, since: datetime) -> NeededDecision:
    return NeededDecision(
        "busy",
        f"{told} of {login} open for long",
        "open",
        "an emitter began them and has neither ended nor cancelled them",
        "see whether the emitter runs; one that is gone for good leaves them to be cancelled",
        link("/envelopes", state="open", emitter=login),
        since,
    )


def _address_of(kind: str, name: str) -> str:
    return f"/{'recipients' if kind == 'role' else f'{kind}s'}/{quote(name, safe='')}"


def _address_of_paused(pause: PauseEntry, readers: Collection[str]) -> str:
    is_reader = pause.kind is PauseKind.SERVICE and pause.name in readers
    return _address_of("reader" if is_reader else pause.kind.value, pause.name)


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
    samples = bus.read(lambda connection: read_totals(connection, range_.step, range_.since(now)))
    parts = [part for part in parts_of(samples, range_, now) if part.sample is not None]
    return page("figures.html", now_shown=sampler.newest, parts=parts[::-1], ranges=RANGES, shown=shown)


@router.get(LIVE)
async def stream(request: Request, parts: TheParts, visitor: TheVisitor) -> StreamingResponse:
    """Tell an open page of each sample, as server-sent events."""

    async def is_in_force() -> bool:
        try:
            await run_in_threadpool(look_visitor_up, request, parts)
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
    samples = bus.read(lambda connection: read_totals(connection, range_.step, range_.since(now)))
    return draw_plots(samples, range_, now)
