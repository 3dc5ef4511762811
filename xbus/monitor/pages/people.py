"""Persons, their rights, their sessions and their tokens."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from xbus.broker.journal import people
from xbus.broker.journal.people import Right
from xbus.monitor.requests import TheBus, ThePage, reserved_for

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
