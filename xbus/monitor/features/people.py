"""Persons with their rights, tokens and logins; the passwords of programs; the audit of all acts."""

import re
from collections.abc import Collection, Iterator, Mapping
from http import HTTPStatus
from typing import Annotated, ClassVar

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from xbus.admin.output import counted, moment
from xbus.broker.journal import people
from xbus.broker.journal.audit.reading import list_acts
from xbus.broker.journal.configuration import Section, check_login, set_password
from xbus.broker.journal.log.sessions import LoginKind
from xbus.broker.journal.people import Right, write_rights
from xbus.broker.logins import Caller
from xbus.errors import CallError, Refused
from xbus.monitor.actions import Action, TypedSecret, asked
from xbus.monitor.bus import BusAccess
from xbus.monitor.features.entries import PLACES
from xbus.monitor.people import Visitor
from xbus.monitor.queries import AuditQuery, until_of
from xbus.monitor.rendering import (
    SESSION_COOKIE,
    MonitorPage,
    TheBus,
    ThePage,
    TheParts,
    TheVisitor,
    link,
    local,
    origin_of,
    reserved_for,
)
from xbus.monitor.shield import LOG_IN, status_of
from xbus.passwords import check_new

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
    page = MonitorPage(parts.renderer, parts.bus.now(), None, request.url.path)
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


@audit.get("/audit")
def acts(bus: TheBus, page: ThePage, query: Annotated[AuditQuery, Query()]) -> HTMLResponse:
    """Show what people and programs did, the newest first."""
    filters = query.filters()
    found = bus.read(lambda connection: list_acts(connection, filters, PAGE_ROWS))
    more = None
    if len(found) == PAGE_ROWS and found[-1].number is not None:
        more = link("/audit", **{**query.model_dump(), "before": found[-1].number})
    return page("audit/list.html", found=found, query=query, more=more, place_of=place_of, words=_words(query))


def place_of(thing: str) -> tuple[str, str] | None:
    """Find the page of an entry of the configuration by its words in the audit: the begin of its address, its name."""
    match = _ENTRY.fullmatch(thing)
    return None if match is None else (PLACES[Section(match[1])], match[2])


def _words(query: AuditQuery) -> list[str]:
    """Give the words of the command that lists the same."""
    options = {"--since": query.since, "--who": query.who, "--action": query.action, "--object": query.object}
    return ["xbus", "audit", "list", *(word for name, value in options.items() if value for word in (name, value))]


Name = Annotated[str, Field(min_length=1, max_length=255)]
NewName = Annotated[str, asked("line", "Name", "To log in by.", min_length=1, max_length=255)]
Rights = Annotated[
    list[Right],
    asked(
        "several",
        "Rights",
        "A manager may do all but say what bots run; only a programmer may. Everybody may view.",
        choices=[right.value for right in Right if right is not Right.VIEWER],
    ),
]
NewPassword = Annotated[TypedSecret, asked("password", "New password")]


def _check_gift(visitor: Visitor, rights: Collection[Right]) -> None:
    """Let nobody but a programmer make a programmer, or get hold of the login of one.

    Raises:
        Refused: the visitor lacks the right (``forbidden``).
    """
    if Right.PROGRAMMER in rights:
        visitor.check(Right.PROGRAMMER)


class AddPerson(Action):
    """Add a person, who can log in once a password is set."""

    path: ClassVar[str] = "people/add"
    title: ClassVar[str] = "Add a person"
    words = "person add {name} {rights} --no-password"

    name: NewName
    rights: Rights = Field(default_factory=list)

    def preview(self, bus: BusAccess) -> Iterator[str]:
        yield "Adds a person who has no password yet."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        _check_gift(visitor, self.rights)
        with bus.writing(visitor) as connection:
            added = people.add_person(connection, self.name, self.rights, None, bus.now())
        yield f"Person {added.name} is added: {write_rights(added.rights)}."
        yield "Set a password next."


class _OfPerson(Action):
    """The person whom an action is about."""

    name: Name

    def preview(self, bus: BusAccess) -> Iterator[str]:
        person = bus.read(lambda connection: people.known_person(connection, self.name))
        yield f"{person.name} has the rights: {write_rights(person.rights)}."


class SetRights(_OfPerson):
    """Give a person these rights, and take all others, at once."""

    path: ClassVar[str] = "people/rights"
    title: ClassVar[str] = "Set the rights"

    rights: Rights = Field(default_factory=list)

    def command(self) -> list[str]:
        return ["xbus", "person", "rights", self.name, *(self.rights or [Right.VIEWER])]

    def typed(self, bus: BusAccess) -> Mapping[str, str]:
        return {"rights": " ".join(bus.read(lambda connection: people.known_person(connection, self.name)).rights)}

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            _check_gift(visitor, {*self.rights} - people.known_person(connection, self.name).rights)
            people.set_rights(connection, self.name, self.rights, bus.now())
        yield f"Person {self.name} has the rights: {write_rights(self.rights or [Right.VIEWER])}."


class SetPassword(_OfPerson):
    """Set the password of a person, and end all sessions. Tokens stay."""

    path: ClassVar[str] = "people/password"
    title: ClassVar[str] = "Set the password"
    words = "person password {name}"

    password: NewPassword

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        password = self.password.get_secret_value()
        check_new(password)
        password_hash = bus.passwords.hash_password(password)
        with bus.writing(visitor) as connection:
            _check_gift(visitor, people.known_person(connection, self.name).rights)
            people.set_password(connection, self.name, password_hash, bus.now())
        yield f"The password of person {self.name} is set, and all sessions have ended."


class ChangeOwnPassword(Action):
    """Change the own password, which ends all own sessions."""

    path: ClassVar[str] = "me/password"
    title: ClassVar[str] = "Change my password"
    words = "person password NAME"
    right: ClassVar[Right] = Right.VIEWER

    present: Annotated[TypedSecret, asked("password", "Present password")]
    password: NewPassword

    def preview(self, bus: BusAccess) -> Iterator[str]:
        yield "All your sessions end: log in again with the new password."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        name, password = visitor.person.name, self.password.get_secret_value()
        if visitor.session_id is None:
            raise Refused("a token changes no password", "log in", code="forbidden")
        check_new(password)
        found = bus.read(lambda connection: people.read_password_hash(connection, name))
        present, password_hash = self.present.get_secret_value(), None if found is None else found[1]
        if not bus.passwords.confirm(visitor.session_id, present, password_hash):
            raise Refused("the present password is wrong", "type it again", code="login_refused")
        password_hash = bus.passwords.hash_password(password)
        with bus.writing(visitor) as connection:
            people.set_password(connection, name, password_hash, bus.now())
        yield "Your password is changed: log in with the new one."


class DisablePerson(_OfPerson):
    """Let a person do nothing any more, at once: all sessions end, and all tokens are removed."""

    path: ClassVar[str] = "people/disable"
    title: ClassVar[str] = "Disable"
    words = "person disable {name}"

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            people.disable_person(connection, self.name, bus.now())
        yield f"Person {self.name} is disabled."


class EnablePerson(_OfPerson):
    """Let a disabled person work again, with the password and the rights of before."""

    path: ClassVar[str] = "people/enable"
    title: ClassVar[str] = "Enable"
    words = "person enable {name}"

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            _check_gift(visitor, people.known_person(connection, self.name).rights)
            people.enable_person(connection, self.name, bus.now())
        yield f"Person {self.name} is enabled."


class EndSessions(_OfPerson):
    """End all sessions of a person, who may log in again. Tokens stay."""

    path: ClassVar[str] = "people/log-out"
    title: ClassVar[str] = "Log out everywhere"
    words = "person logout {name}"

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            person = people.known_person(connection, self.name)
            ended = people.end_sessions(connection, person.id, bus.now())
        yield f"{counted(ended, 'session')} of person {self.name} ended."


class AddToken(_OfPerson):
    """Make a token by which a program acts for a person. Nobody can read it again."""

    path: ClassVar[str] = "people/token/add"
    title: ClassVar[str] = "Make a token"
    words = "person token add {name} {token} --right={rights} --until={until}"

    token: Annotated[
        str, asked("line", "Name of the token", "Tells it from the person's others.", min_length=1, max_length=255)
    ]
    rights: Rights = Field(default_factory=list)
    until: Annotated[str, asked("line", "Until", "90d from now, or a date.", max_length=64)] = ""

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        until = until_of(self.until)
        _check_gift(visitor, self.rights)
        with bus.writing(visitor) as connection:
            person = people.known_person(connection, self.name)
            made = people.add_token(connection, person.id, self.token, self.rights, until, bus.now())
        end = "" if until is None else f" It ends at {moment(until)}."
        yield f"The token {self.token} of {self.name} is made. Copy it now, as nobody can read it again.{end}"
        yield made


class RemoveToken(_OfPerson):
    """Remove a token: programs that have it are refused at once."""

    path: ClassVar[str] = "people/token/remove"
    title: ClassVar[str] = "Remove the token"
    words = "person token remove {name} {token}"

    token: Annotated[str, Field(min_length=1, max_length=255)]

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            person = people.known_person(connection, self.name)
            people.remove_token(connection, person.id, self.token, bus.now())
        yield f"Token {self.token} of person {self.name} is removed."


class SetLoginPassword(Action):
    """Set the password of an emitter or a role."""

    path = "configuration/password"
    title = "Set the password"
    words = "password {kind} {login} --keep-sessions={keep_sessions}"

    kind: LoginKind
    login: str = Field(max_length=4000)
    password: Annotated[TypedSecret, asked("password", "New password")]
    keep_sessions: Annotated[bool, asked("check", "Keep sessions", "Who is logged in goes on.")] = False

    def preview(self, bus: BusAccess) -> Iterator[str]:
        bus.read(lambda connection: check_login(connection, self.kind, self.login))
        yield f"Set the password of {self.kind} {self.login}."
        yield "Within 2 seconds the broker ends all sessions of the login: its programs must log in with the new one."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        password_hash = bus.passwords.hash_password(self.password.get_secret_value())
        with bus.writing(visitor) as connection:
            set_password(connection, self.kind, self.login, password_hash, bus.now(), keep_sessions=self.keep_sessions)
        yield f"The password of {self.kind} {self.login} is set."
