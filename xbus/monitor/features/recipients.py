"""Roles and their recipients: their state, their pauses, and taking them off the bus; the state of the whole bus."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse
from pydantic import Field

from xbus.admin.objects import of_finding, of_role, of_type, progress_of
from xbus.admin.output import moment
from xbus.admin.repair.moves import told
from xbus.broker.journal.configuration import RoleSpec, ServiceSpec, detaching, pausing, read_stored
from xbus.broker.journal.configuration.pausing import find_pause, find_subject
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.role_progress import MOST_COUNTED
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.operations.failures import FailureSummary, list_failures
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.broker.journal.operations.under_way import UnderWay, read_under_way
from xbus.broker.journal.people import Right
from xbus.broker.journal.samples.keeping import read_of_role
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import Refused
from xbus.monitor.actions import Action, OptionalReason, Reason, asked
from xbus.monitor.bus import BusAccess, VisitorBus
from xbus.monitor.drawings.plot import LinePlot
from xbus.monitor.live.plots import RANGES, USUAL, RangeName, draw_role_plots
from xbus.monitor.people import Visitor
from xbus.monitor.queries import until_of
from xbus.monitor.rendering import LIVE, TheBus, ThePage, TheRange, TheVisitor
from xbus.monitor.rest import ObjectResponse, answer, answer_list

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


@dataclass(frozen=True, slots=True)
class _ShownRole:
    status: RoleStatus
    entry: RoleSpec
    service: ServiceSpec | None
    own_pause: PauseEntry | None
    failures: list[FailureSummary]


@router.get("/recipients/{login:path}")
def show(bus: TheBus, page: ThePage, login: str, shown: TheRange = USUAL) -> HTMLResponse:
    """Show a role: its programs and their work, its rates and its lag over time, and its newest failures."""
    with bus.reading() as connection:
        role = _read(connection, login)
        plots = _plots(connection, role.status, shown, bus.now())
    return page(
        "recipients/show.html",
        role=role,
        detail=role,
        it=role.status,
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


def _read(connection: Connection, login: str) -> _ShownRole:
    role_id = find_subject(connection, PauseKind.ROLE, login)
    status = list_roles(connection, login)[0]
    in_use = read_stored(connection).in_use
    return _ShownRole(
        status,
        in_use.roles[login],
        in_use.services.get(status.service),
        read_pauses(connection).get((PauseKind.ROLE, role_id)),
        list_failures(connection, role=login, limit=SHOWN_FAILURES),
    )


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
    return answer({"front": front, "back": back})


@api.get("/roles", operation_id="list_roles")
def roles(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """List the roles: their state, their work, and how far they lag behind."""
    now = bus.now()
    found = bus.read(list_roles)
    days = bus.config.journal.owed_days
    return answer_list(of_role(role, "owed_too_long" if role.owes_too_long(days, now) else None, now) for role in found)


@api.get("/roles/{login:path}/why", operation_id="explain_role")
def why_role(bus: TheBus, _: TheVisitor, login: Login) -> ObjectResponse:
    """Explain how a role is."""
    return answer_list(map(of_finding, bus.inquiry().role(login)))


@api.get("/emitters/{login:path}/why", operation_id="explain_emitter")
def why_emitter(bus: TheBus, _: TheVisitor, login: Login) -> ObjectResponse:
    """Explain how an emitter is."""
    return answer_list(map(of_finding, bus.inquiry().emitter(login)))


@api.get("/types", operation_id="list_types")
def types(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """List the event types with what the journal has of them, and the events of the last hour."""
    now = bus.now()
    counts = bus.read(lambda connection: count_types(connection, now - timedelta(hours=1)))
    return answer_list(of_type(each) for each in counts.types)


EFFECTS = {
    PauseKind.ROLE: "Its recipients get nothing new. All that they are owed is kept.",
    PauseKind.SERVICE: "No recipient of its roles gets anything new. All that they are owed is kept.",
    PauseKind.TYPE: "New events of the type are refused as paused. What is open may be ended.",
    PauseKind.EMITTER: "New envelopes of the emitter are refused as paused. What is open may be ended.",
    PauseKind.BOT: "None of its runs begins. Its times count as missed. What runs goes on.",
}

Until = Annotated[
    str,
    asked("line", "Until", "When the pause ends: 2h for two hours from now, or a date and time in UTC.", max_length=64),
]


class _OfSubject(Action):
    """An action on one thing that can be paused.

    Args:
        kind: the kind of the thing.
        name: its name or login.
    """

    right = Right.OPERATOR

    kind: PauseKind
    name: str = Field(max_length=4000)

    @property
    def told(self) -> str:
        """The thing in a sentence."""
        return f'{self.kind.told} "{self.name}"'

    def check(self, bus: BusAccess) -> None:
        """Let the action pass if the thing is in use.

        Raises:
            Refused: nothing of that kind has this name (``unknown_login``, ``unknown_name``).
        """
        bus.read(lambda connection: pausing.find_subject(connection, self.kind, self.name))


class Pause(_OfSubject):
    """Begin nothing new with a role, service, event type or emitter."""

    path = "pause"
    title = "Pause"
    words = "pause {kind} {name} --reason={reason} --until={until}"

    reason: Reason
    until: Until = ""

    def preview(self, bus: BusAccess) -> Iterator[str]:
        self.check(bus)
        yield f"Pause the {self.told}."
        yield EFFECTS[self.kind]
        yield "Work under way goes on."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        paused = self._pause(bus, visitor, until_of(self.until))
        yield f"The {paused.told}."
        yield "The broker knows of it within two seconds, and after a restart."

    def _pause(self, bus: BusAccess, visitor: Visitor, until: datetime | None) -> PauseEntry:
        with bus.writing() as connection:
            return pausing.pause(connection, self.kind, self.name, bus.decision(self.reason), until)


class DrainAndPause(Pause):
    """Pause a role, service, event type or emitter, and watch until what is under way has ended."""

    path = "drain"
    title = "Drain"
    words = "drain {kind} {name} --reason={reason} --until={until}"

    def preview(self, bus: BusAccess) -> Iterator[str]:
        self.check(bus)
        yield f"Pause the {self.told}, and wait until what is under way has ended."
        yield EFFECTS[self.kind]
        yield "Its page shows what is still under way."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        paused = self._pause(bus, visitor, until_of(self.until))
        yield f"The {paused.told}."
        yield "Its page shows what is still under way, and tells when nothing is."


class ResumePaused(_OfSubject):
    """Let a paused role, service, event type or emitter go on."""

    path = "resume"
    title = "Resume"
    words = "resume {kind} {name} --reason={reason}"

    reason: OptionalReason = ""

    def preview(self, bus: BusAccess) -> Iterator[str]:
        paused = bus.read(lambda connection: pausing.find_pause(connection, self.kind, self.name))
        yield f"The {paused.told}, since {moment(paused.since)}."
        yield "Let it go on. The broker brings what waited."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            pausing.resume(connection, self.kind, self.name, bus.decision(self.reason))
        yield f"The {self.told} is resumed."


class Detach(Action):
    """Take an absent consumer role off the bus, which keeps nothing for it any more."""

    path = "recipients/detach"
    title = "Detach"
    words = "recipient detach {login} --reason={reason}"
    right = Right.OPERATOR
    is_final = True

    login: str = Field(max_length=4000)
    reason: Reason

    def preview(self, bus: BusAccess) -> Iterator[str]:
        yield from bus.read(lambda connection: list(told(detaching.outlook(connection, self.login))))
        yield "It can't register until somebody attaches it, and gets what is received from then on."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            detaching.detach(connection, self.login, self.reason, bus.now())
        yield f"{self.login} is detached."


class Attach(Action):
    """Put a detached consumer role on the bus again."""

    path = "recipients/attach"
    title = "Attach"
    words = "recipient attach {login}"
    right = Right.OPERATOR

    login: str = Field(max_length=4000)

    def preview(self, bus: BusAccess) -> Iterator[str]:
        yield f"Put {self.login} on the bus again. It gets envelopes that are received from now on."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            position = detaching.attach(connection, self.login, bus.now())
        yield f"{self.login} is attached: it gets all from position {position} on."
