"""Roles and their recipients: their state, their pauses, and taking them off the bus; the state of the whole bus."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

from xbus.admin.commands import recipient
from xbus.admin.commands import type as types
from xbus.admin.commands.pausing import DrainAndPause, Pause, ResumePaused
from xbus.admin.commands.recipient import Attach, Detach
from xbus.admin.objects import of_finding, progress_of
from xbus.broker.journal.configuration import read_stored
from xbus.broker.journal.configuration.pausing import find_pause, find_subject
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.role_progress import MOST_COUNTED
from xbus.broker.journal.operations.coming import UnderWay, read_under_way
from xbus.broker.journal.operations.failures import list_failures
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.broker.journal.samples.sample import read_of_role
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import Refused
from xbus.monitor.actions import serve_answer
from xbus.monitor.drawings.plot import LinePlot
from xbus.monitor.live.plots import RANGES, USUAL, RangeName, draw_role_plots
from xbus.monitor.rendering import LIVE, TheBus, ThePage, TheRange, TheVisitor
from xbus.monitor.rest import ObjectResponse, answer_list

router = APIRouter()

SHOWN_FAILURES = 10
"""The newest failures of a role. More make its page long; the list of failures has all."""


@router.get(f"{LIVE}/recipients")
@router.get("/recipients")
def list_(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show the roles: their state, their lag and their work."""
    roles = bus.read(list_roles)
    owed_days, now = bus.config.journal.owed_days, bus.now()
    late = {role.role for role in roles if role.owes_too_long(owed_days, now)}
    return page("recipients/list.html", roles=roles, late=late, progress_of=progress_of, most=MOST_COUNTED)


@router.get("/recipients/{login:path}")
def show(bus: TheBus, page: ThePage, login: str, shown: TheRange = USUAL) -> HTMLResponse:
    """Show a role: its programs and their work, its rates and its lag over time, and its newest failures."""
    with bus.reading() as connection:
        role_id = find_subject(connection, PauseKind.ROLE, login)
        status = list_roles(connection, login)[0]
        entry = read_stored(connection).in_use.roles[login]
        own_pause = read_pauses(connection).get((PauseKind.ROLE, role_id))
        failures = list_failures(connection, role=login, limit=SHOWN_FAILURES)
        plots = _plots(connection, status, shown, bus.now())
    return page(
        "recipients/show.html",
        entry=entry,
        own_pause=own_pause,
        detail={"failures": failures},
        it=status,
        progress_of=progress_of,
        moment_of=datetime.fromisoformat,
        most=MOST_COUNTED,
        plots=plots,
        ranges=RANGES,
        shown=shown,
    )


@router.get(f"{LIVE}/role-plots")
def role_plots(bus: TheBus, page: ThePage, role: str, shown: TheRange = USUAL) -> HTMLResponse:
    """Show the plots of a role; its page asks for them again and again."""
    with bus.reading() as connection:
        find_subject(connection, PauseKind.ROLE, role)
        plots = _plots(connection, list_roles(connection, role)[0], shown, bus.now())
    return page("live/plots.html", plots=plots)


def _plots(connection: Connection, role: RoleStatus, shown: RangeName, now: datetime) -> list[LinePlot]:
    """Draw a role over time; a worker has nothing of its own to lack."""
    if role.kind != "consumer":
        return []
    range_ = RANGES[shown]
    samples = read_of_role(connection, range_.step, range_.since(now), role.role_id)
    return draw_role_plots(samples, role.role_id, range_, now)


@router.get(f"{LIVE}/pauses")
def pause(bus: TheBus, page: ThePage, kind: PauseKind, name: str) -> HTMLResponse:
    """Show a pause, and what is still under way of the paused; its page asks for this again and again."""
    under_way: UnderWay | None = None
    paused: PauseEntry | None = None
    with bus.reading() as connection:
        try:
            paused = find_pause(connection, kind, name)
            under_way = read_under_way(connection, paused, bus.now())
        except Refused as error:
            if error.code != "not_paused":
                raise
    return page("recipients/pause.html", pause=paused, under_way=under_way, kind=kind, name=name)


@router.get(f"{LIVE}/why")
def why(bus: TheBus, page: ThePage, role: str = "", emitter: str = "") -> HTMLResponse:
    """Explain the state of a role or an emitter. The page asks apart, as an absent broker costs seconds."""
    findings = bus.inquiry().role(role) if role else bus.inquiry().emitter(emitter)
    return page("recipients/why.html", findings=findings, name=role or emitter)


api = APIRouter(tags=["state"], default_response_class=ObjectResponse)

Login = Annotated[str, Path(max_length=255)]


@api.get("/health", operation_id="tell_health")
async def health(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """Tell how front and back are; null for one that does not answer."""
    front, back = await bus.broker.health_of_both()
    return ObjectResponse({"front": front, "back": back})


serve_answer(api, "/roles", recipient.list_, "list_roles")
serve_answer(api, "/types", types.list_, "list_types")


@api.get("/roles/{login:path}/why", operation_id="explain_role")
def why_role(bus: TheBus, _: TheVisitor, login: Login) -> ObjectResponse:
    """Explain how a role is."""
    return answer_list(map(of_finding, bus.inquiry().role(login)))


@api.get("/emitters/{login:path}/why", operation_id="explain_emitter")
def why_emitter(bus: TheBus, _: TheVisitor, login: Login) -> ObjectResponse:
    """Explain how an emitter is."""
    return answer_list(map(of_finding, bus.inquiry().emitter(login)))


ACTIONS = (Pause, DrainAndPause, ResumePaused, Detach, Attach)
