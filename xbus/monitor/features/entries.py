"""The configuration: all entries as the bus file groups them, and a page for each."""

from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from xbus.admin import bus_file
from xbus.broker.journal.configuration import (
    BusSpec,
    EventTypeSpec,
    Section,
    Stored,
    logins_without_password,
    read_stored,
)
from xbus.broker.journal.configuration.chaining import stored_nodes
from xbus.broker.journal.configuration.entries import Entry
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import Refused
from xbus.monitor.drawings.graphs import TypeDrawing, TypeNode, draw_type
from xbus.monitor.rendering import TheBus, ThePage

router = APIRouter()

WORDS = {
    Section.EVENT_TYPE: "Event type",
    Section.SERVICE: "Service",
    Section.READER: "Reader",
    Section.ROLE: "Role",
    Section.EMITTER_PROFILE: "Emitter profile",
    Section.EMITTER: "Emitter",
    Section.BOT: "Bot",
    Section.SUBSCRIPTION: "Subscription",
}

PLACES = {
    Section.EVENT_TYPE: "/types/",
    Section.SERVICE: "/services/",
    Section.READER: "/readers/",
    Section.ROLE: "/recipients/",
    Section.EMITTER_PROFILE: "/profiles/",
    Section.EMITTER: "/emitters/",
    Section.BOT: "/bots/",
    Section.SUBSCRIPTION: "/readers/subscription%2F",
}
"""The address of an entry's page, before its name."""


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """An entry with what its page says of it.

    Args:
        text: the entry as the bus file has it.
        pause: why nothing new begins with it.
    """

    section: Section
    name: str
    entry: Entry
    text: str
    stored: Stored
    pause: PauseEntry | None

    @property
    def word(self) -> str:
        """The kind of the entry, for its heading."""
        return WORDS[self.section]


@router.get("/configuration")
def overview(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show all entries."""
    with bus.reading() as connection:
        stored = read_stored(connection)
        pauses = {(each.kind, each.name): each for each in read_pauses(connection).values()}
        missing = set(logins_without_password(connection))
    return page(
        "configuration/overview.html", stored=stored, it=stored.in_use, missing=missing, pauses=pauses, words=WORDS
    )


@router.get("/types/{name:path}")
def event_type(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show an event type: its graph, its counts, and who may send it."""
    with bus.reading() as connection:
        shown = read_entry(connection, Section.EVENT_TYPE, name)
        counts = count_types(connection, bus.now() - timedelta(hours=1))
    in_use = shown.stored.in_use
    entry = in_use.event_types[name]
    profiles = [profile for profile in in_use.profiles.values() if name in profile.event_types]
    names = {profile.name for profile in profiles}
    return page(
        "configuration/type.html",
        shown=shown,
        count=next((each for each in counts.types if each.name == name), None),
        drawing=drawing_of(entry, in_use),
        profiles=profiles,
        emitters=[each for each in in_use.emitters.values() if each.profile in names],
    )


@router.get("/services/{name:path}")
def service(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show a service: who provides it, and which event types lead to it."""
    with bus.reading() as connection:
        shown = read_entry(connection, Section.SERVICE, name)
    in_use = shown.stored.in_use
    types = [each for each in in_use.event_types.values() if any(node.service == name for node in each.nodes.values())]
    roles = [each for each in in_use.roles.values() if each.service == name]
    return page("configuration/service.html", shown=shown, types=types, roles=roles)


@router.get("/profiles/{name:path}")
def profile(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show a profile: what its emitters may send, and who they are."""
    with bus.reading() as connection:
        shown = read_entry(connection, Section.EMITTER_PROFILE, name)
    in_use = shown.stored.in_use
    emitters = [each for each in in_use.emitters.values() if each.profile == name]
    return page(
        "configuration/profile.html",
        shown=shown,
        types=sorted(in_use.profiles[name].event_types),
        emitters=emitters,
    )


@router.get("/emitters/{login:path}")
def emitter(bus: TheBus, page: ThePage, login: str) -> HTMLResponse:
    """Show an emitter: what it may send, and whether it can log in."""
    with bus.reading() as connection:
        shown = read_entry(connection, Section.EMITTER, login)
        has_password = ("emitter", login) not in set(logins_without_password(connection))
    in_use = shown.stored.in_use
    own = in_use.profiles[in_use.emitters[login].profile]
    return page("configuration/emitter.html", shown=shown, profile=own, has_password=has_password)


def read_entry(connection: Connection, section: Section, name: str) -> ShownEntry:
    """Read an entry that is in use.

    Raises:
        Refused: there is none of this name (``unknown_name``).
    """
    stored = read_stored(connection)
    entry = stored.in_use.section(section).get(name)
    if entry is None:
        was = ", it was removed" if name in stored.removed.section(section) else ""
        raise Refused(
            f'there is no {section} "{name[:255]}"{was}',
            "see the page Configuration for all of them",
            code="unknown_name",
        )
    text = bus_file.write(BusSpec.holding(section, name, entry))
    pauses = {(each.kind, each.name): each for each in read_pauses(connection).values()}
    return ShownEntry(section, name, entry, text, stored, pauses.get((_PAUSED.get(section, PauseKind.ROLE), name)))


_PAUSED = {
    Section.EVENT_TYPE: PauseKind.TYPE,
    Section.SERVICE: PauseKind.SERVICE,
    Section.READER: PauseKind.SERVICE,
    Section.BOT: PauseKind.BOT,
    Section.EMITTER: PauseKind.EMITTER,
}


def drawing_of(entry: EventTypeSpec, in_use: BusSpec) -> TypeDrawing:
    """Draw the graph of an event type."""
    kinds = {each.name: str(each.kind) for each in in_use.services.values()}
    return draw_type(
        TypeNode(node.name, f"emits {node.emits[0]}", "consumer")
        if node.emits
        else TypeNode(node.name, node.service, kinds.get(node.service, ""), node.to)
        for node in stored_nodes(entry).values()
    )
