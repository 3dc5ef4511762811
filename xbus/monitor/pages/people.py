"""Persons, their rights, their sessions and their tokens."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from xbus.broker.journal import people
from xbus.broker.journal.people import Right
from xbus.monitor.requests import TheBus, ThePage, TheVisitor

router = APIRouter(prefix="/people")


@router.get("")
def list_(bus: TheBus, visitor: TheVisitor, page: ThePage) -> HTMLResponse:
    """Show all persons."""
    visitor.check(Right.MANAGER)
    with bus.reading() as connection:
        found = people.list_persons(connection)
        sessions = people.count_sessions_of(connection, bus.now())
    return page("people/list.html", found=found, sessions=sessions)


@router.get("/{name:path}")
def show(bus: TheBus, visitor: TheVisitor, page: ThePage, name: str) -> HTMLResponse:
    """Show a person."""
    visitor.check(Right.MANAGER)
    with bus.reading() as connection:
        person = people.known_person(connection, name)
        tokens = people.list_tokens(connection, person.id)
        sessions = people.count_sessions_of(connection, bus.now()).get(person.id, 0)
    return page("people/show.html", person=person, tokens=tokens, sessions=sessions)
