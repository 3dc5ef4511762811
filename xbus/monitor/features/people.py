"""Persons with their rights, tokens and logins; the passwords of programs; the audit of all acts."""

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from xbus.admin.commands import audit as audit_commands
from xbus.admin.commands import person as person_commands
from xbus.admin.signatures import BusAction, CommandBus, SecretText, argument, option, typed
from xbus.broker.journal import people
from xbus.broker.journal.configuration import Section, check_login, set_password
from xbus.broker.journal.log.sessions import LoginKind
from xbus.broker.logins import Caller
from xbus.errors import CallError, Refused
from xbus.monitor.actions import QueryForm, query_of
from xbus.monitor.bus import VisitorBus
from xbus.monitor.features.entries import PLACES
from xbus.monitor.rendering import (
    SESSION_COOKIE,
    MonitorPage,
    TheActor,
    TheBus,
    ThePage,
    TheParts,
    TheVisitor,
    local,
    origin_of,
    reserved_for,
)
from xbus.monitor.shield import LOG_IN, status_of
from xbus.passwords import check_new
from xbus.rights import Right, write_rights

log_in = APIRouter()

MOST_LETTERS = 1024


@log_in.get(LOG_IN)
def ask(request: Request, parts: TheParts, then: str = "/") -> HTMLResponse:
    """Ask for name and password."""
    return _form(request, parts, then)


@log_in.post(LOG_IN)
async def enter(
    request: Request,
    parts: TheParts,
    name: Annotated[str, Form(max_length=MOST_LETTERS)],
    password: Annotated[str, Form(max_length=MOST_LETTERS)],
    then: Annotated[str, Form()] = "/",
) -> Response:
    """Begin a session."""
    try:
        token = await parts.door.enter(name, password, caller_of(request))
    except CallError as error:
        return _form(request, parts, then, name, error)
    answer = RedirectResponse(local(then), HTTPStatus.SEE_OTHER)
    answer.set_cookie(SESSION_COOKIE, token, httponly=True, samesite="lax", secure=parts.is_encrypted)
    return answer


@log_in.post("/log-out")
def leave(parts: TheParts, visitor: TheVisitor) -> Response:
    """End the session."""
    parts.door.leave(visitor)
    answer = RedirectResponse(LOG_IN, HTTPStatus.SEE_OTHER)
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="lax", secure=parts.is_encrypted)
    return answer


def caller_of(request: Request) -> Caller:
    """Tell by which connection and from which address a request came."""
    origin = origin_of(request)
    return Caller(f"{origin} {request.client.port if request.client else 0}".encode(), origin)


def _form(request: Request, parts: TheParts, then: str, name: str = "", error: CallError | None = None) -> HTMLResponse:
    page = MonitorPage(parts.templates, parts.bus.now(), None, request.url.path)
    status = HTTPStatus.OK if error is None else status_of(error)
    return page("log_in.html", status=status, then=local(then), name=name, error=error)


router = APIRouter(prefix="/people", route_class=reserved_for(Right.MANAGER))


@router.get("")
def list_(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show all persons."""
    with bus.reading() as connection:
        found = people.list_persons(connection)
        sessions = people.count_sessions_of(connection, bus.now())
    return page("people/list.html", found=found, sessions=sessions)


@router.get("/{name:path}")
def show(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show a person."""
    with bus.reading() as connection:
        person = people.known_person(connection, name)
        tokens = people.list_tokens(connection, person.id)
        sessions = people.count_sessions_of(connection, bus.now()).get(person.id, 0)
    return page("people/show.html", person=person, tokens=tokens, sessions=sessions)


audit = APIRouter()

PAGE_ROWS = 50

_ENTRY = re.compile(rf'({"|".join(Section)}) "(.+)"', re.DOTALL)


AuditQuery: TypeAlias = Annotated[QueryForm, Depends(query_of(audit_commands.list_, "limit"))]


@audit.get("/audit")
def acts(bus: TheActor, page: ThePage, query: AuditQuery) -> HTMLResponse:
    """Show what people and programs did, the newest first."""
    seen = query.ask(bus, limit=PAGE_ROWS)
    options = [word for name, value in query.given().items() if name != "before" for word in (f"--{name}", str(value))]
    return page(
        "audit/list.html",
        found=seen.found,
        query=query,
        more=query.further("/audit", seen),
        place_of=place_of,
        words=["xbus", "audit", "list", *options],
    )


def place_of(thing: str) -> tuple[str, str] | None:
    """Find the page of an entry of the configuration by its words in the audit: the begin of its address, its name."""
    match = _ENTRY.fullmatch(thing)
    return None if match is None else (PLACES[Section(match[1])], match[2])


NEW_PASSWORD = typed("New password", longest=MOST_LETTERS)


class AddPerson(BusAction):
    """Add a person, who can log in once a password is set."""

    path = "people/add"
    title = "Add a person"
    words = "person add"

    name: str = argument(title="Name", about="To log in by.", longest=255)
    rights: Sequence[Right] = person_commands.RIGHTS

    def command(self) -> list[str]:
        return [*super().command(), "--no-password"]

    def preview(self, bus: CommandBus) -> Iterator[str]:
        yield "Adds a person who has no password yet."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        person_commands.check_gift(bus, self.rights)
        with bus.writing() as connection:
            added = people.add_person(connection, self.name, self.rights, None, bus.now())
        yield f"Person {added.name} is added: {write_rights(added.rights)}."
        yield "Set a password next."


class SetPassword(person_commands.PersonAction):
    """Set the password of a person, and end all sessions. Tokens stay."""

    path = "people/password"
    title = "Set the password"
    words = "person password"

    password: SecretText = NEW_PASSWORD

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        password = self.password
        check_new(password)
        password_hash = bus.hash_password(password)
        with bus.writing() as connection:
            person_commands.check_gift(bus, people.known_person(connection, self.name).rights)
            people.set_password(connection, self.name, password_hash, bus.now())
        yield f"The password of person {self.name} is set, and all sessions have ended."


class ChangeOwnPassword(BusAction):
    """Change the own password, which ends all own sessions."""

    path = "me/password"
    title = "Change my password"
    words = "person password NAME"
    right = Right.VIEWER

    present: SecretText = typed("Present password", longest=MOST_LETTERS)
    password: SecretText = NEW_PASSWORD

    def preview(self, bus: CommandBus) -> Iterator[str]:
        yield "All your sessions end: log in again with the new password."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        assert isinstance(bus, VisitorBus), "only visitors of the monitor have this page"
        visitor, name, password = bus.visitor, bus.visitor.person.name, self.password
        if visitor.session_id is None:
            raise Refused("a token changes no password", "log in", code="forbidden")
        check_new(password)
        found = bus.read(lambda connection: people.read_password_hash(connection, name))
        present, present_hash = self.present, None if found is None else found[1]
        if not bus.passwords.confirm(visitor.session_id, present, present_hash):
            raise Refused("the present password is wrong", "type it again", code="login_refused")
        password_hash = bus.hash_password(password)
        with bus.writing() as connection:
            # Another session may have changed it since, which ended this one.
            people.set_password(connection, name, password_hash, bus.now(), verified_hash=present_hash)
        yield "Your password is changed: log in with the new one."


class SetLoginPassword(BusAction):
    """Set the password of an emitter or a role."""

    path = "configuration/password"
    title = "Set the password"
    words = "password"

    kind: LoginKind = argument()
    login: str = argument()
    password: SecretText = NEW_PASSWORD
    keep_sessions: bool = option("Who is logged in goes on.", title="Keep sessions")

    def preview(self, bus: CommandBus) -> Iterator[str]:
        bus.read(lambda connection: check_login(connection, self.kind, self.login))
        yield f"Set the password of {self.kind} {self.login}."
        yield "Within 2 seconds the broker ends all sessions of the login: its programs must log in with the new one."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        password_hash = bus.hash_password(self.password)
        with bus.writing() as connection:
            set_password(connection, self.kind, self.login, password_hash, bus.now(), keep_sessions=self.keep_sessions)
        yield f"The password of {self.kind} {self.login} is set."


ACTIONS = (
    AddPerson,
    SetPassword,
    ChangeOwnPassword,
    person_commands.AddToken,
    SetLoginPassword,
    person_commands.SetRights,
    person_commands.DisablePerson,
    person_commands.EnablePerson,
    person_commands.EndSessions,
    person_commands.RemoveToken,
)
