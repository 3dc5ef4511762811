"""The configuration: a page and a form for each entry, an editor of the whole bus file, and the plan of both.

The bus file stays the one description of the bus: every form makes a bus file, which is planned and applied as by
``xbus apply``.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Self, TypeAlias

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, field_validator, model_validator

from xbus.admin import bus_file
from xbus.admin.bus_file.reader import Decisions, PlannedChange, apply_change, plan_change
from xbus.admin.replay import unsent
from xbus.admin.signatures import LINKED, BusAction, CommandBus, option, typed
from xbus.broker.journal.configuration import (
    BusSpec,
    Change,
    EventTypeSpec,
    Move,
    Section,
    Stored,
    logins_without_password,
    read_stored,
)
from xbus.broker.journal.configuration.chaining import stored_nodes
from xbus.broker.journal.configuration.decisions import Arrears, Owed
from xbus.broker.journal.configuration.entries import Entry
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import ConfigurationError, Refused, XbusError
from xbus.monitor.actions import form_of
from xbus.monitor.bus import VisitorBus
from xbus.monitor.drawings.graphs import TypeDrawing, TypeNode, draw_type
from xbus.monitor.features.forms import Draft, Given
from xbus.monitor.queries import check_texts
from xbus.monitor.rendering import MonitorPage, TheBus, ThePage, TheVisitor, reserved_for
from xbus.rights import Right

entry_pages = APIRouter()

_SHOWN = {
    Section.EVENT_TYPE: ("Event type", "/types/"),
    Section.SERVICE: ("Service", "/services/"),
    Section.READER: ("Reader", "/readers/"),
    Section.ROLE: ("Role", "/recipients/"),
    Section.EMITTER_PROFILE: ("Emitter profile", "/profiles/"),
    Section.EMITTER: ("Emitter", "/emitters/"),
    Section.BOT: ("Bot", "/bots/"),
    Section.SUBSCRIPTION: ("Subscription", "/readers/subscription%2F"),
}

WORDS = {section: word for section, (word, _) in _SHOWN.items()}

PLACES = {section: place for section, (_, place) in _SHOWN.items()}
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


@entry_pages.get("/configuration")
def overview(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show all entries."""
    with bus.reading() as connection:
        stored = read_stored(connection)
        pauses = {(each.kind, each.name): each for each in read_pauses(connection).values()}
        missing = set(logins_without_password(connection))
    return page(
        "configuration/overview.html", stored=stored, it=stored.in_use, missing=missing, pauses=pauses, words=WORDS
    )


@entry_pages.get("/types/{name:path}")
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


@entry_pages.get("/services/{name:path}")
def service(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show a service: who provides it, and which event types lead to it."""
    shown = bus.read(lambda connection: read_entry(connection, Section.SERVICE, name))
    in_use = shown.stored.in_use
    types = [each for each in in_use.event_types.values() if any(node.service == name for node in each.nodes.values())]
    roles = [each for each in in_use.roles.values() if each.service == name]
    return page("configuration/service.html", shown=shown, types=types, roles=roles)


@entry_pages.get("/profiles/{name:path}")
def profile(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show a profile: what its emitters may send, and who they are."""
    shown = bus.read(lambda connection: read_entry(connection, Section.EMITTER_PROFILE, name))
    in_use = shown.stored.in_use
    emitters = [each for each in in_use.emitters.values() if each.profile == name]
    return page(
        "configuration/profile.html", shown=shown, types=sorted(in_use.profiles[name].event_types), emitters=emitters
    )


@entry_pages.get("/emitters/{login:path}")
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


MOST_LINES = 200
"""The most lines of a difference that are shown; nobody reads more in a page."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line; ``sign`` is ``+`` for a new one, ``-`` for a removed one, else a blank."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change of a plan, its lines in the bus file, and what is owed because of it."""

    change: Change
    lines: Sequence[DiffLine]
    owed: Sequence[Arrears]


def shown_changes(planned: PlannedChange) -> list[ShownChange]:
    """Give each change with its lines."""
    return [ShownChange(each, _lines(each), list(planned.owed_by(each))) for each in planned.plan.changes]


def differences(before: str, after: str) -> list[DiffLine]:
    """Compare two texts."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    # The first two name the files. A text may have lines that look like them.
    shown = (DiffLine(line[:1], line[1:]) for line in islice(lines, 2, None) if line[:1] in "+- ")
    return list(islice(shown, MOST_LINES))


def _lines(change: Change) -> list[DiffLine]:
    after = bus_file.write(BusSpec.holding(change.section, change.name, change.entry))
    match change.move:
        case Move.RENAME:
            return []
        case Move.REMOVE:
            return differences(after, "")
        case Move.CHANGE if change.before is not None:
            return differences(bus_file.write(BusSpec.holding(change.section, change.name, change.before)), after)
    return differences("", after)


MOST_LETTERS = 64 * 1024 * 1024
"""Characters of a bus file. The server bounds a request below that."""


class ApplyBusFile(BusAction):
    """Change the bus to match a bus file, all of it or nothing.

    ``version`` is that of the configuration when somebody looked at the plan; the bus refuses to apply it to another.
    """

    path = "configuration/apply"
    title = "Apply"
    words = "apply"

    file: str = typed("Bus file", asked="file", longest=MOST_LETTERS, is_required=False)
    prune: bool = option("", title="Remove what the file does not name")
    owed: Owed | None = option(
        "What becomes of envelopes that are owed where no way leads any more.", title="What is owed"
    )
    to: str | None = option("The role that gets what is rerouted.", title="To")
    version: int | None = LINKED

    def command(self) -> list[str]:
        return [*super().command(), "FILE"]

    def preview(self, bus: CommandBus) -> Iterator[str]:
        planned = bus.read(self.planned)
        for problem in planned.problems:
            yield f"Line {problem.line}: {problem.sentence}."
        for change in planned.plan.changes:
            yield f"{change}."
            yield from (f"{owed}." for owed in planned.owed_by(change))
        for change in planned.plan.programs:
            yield f'To say what the bot "{change.name}" runs takes the right {Right.PROGRAMMER}.'

    def planned(self, connection: Connection) -> PlannedChange:
        """Compare the file with the bus.

        Raises:
            ConfigurationError: no role can get what shall be rerouted (``no_heir``).
        """
        return plan_change(connection, self.file.encode(), self._decisions)

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            planned = self.planned(connection)
            self._check(planned)
            if planned.plan.programs:
                bus.check_right(Right.PROGRAMMER)
            applied = apply_change(connection, planned, self._decisions, bus.now())
        yield from applied.sentences()
        yield from map(unsent, applied.histories)
        if not applied.plan.changes:
            yield "Nothing was changed: the bus is as the file says."

    def _check(self, planned: PlannedChange) -> None:
        if planned.problems:
            told = "; ".join(f"line {problem.line}: {problem.sentence}" for problem in planned.problems[:20])
            raise Refused(f"the bus file can't be applied ({told})", "correct it", code="bad_bus_file")
        if self.version is not None and self.version != planned.plan.version:
            raise ConfigurationError(
                "someone else has changed the configuration in the meantime",
                "look at the changes again",
                code="stale_plan",
            )
        if planned.arrears and self.owed is None:
            raise Refused(
                "envelopes are still owed where no way leads any more",
                "decide what becomes of them: keep, drop or reroute",
                code="owed_undecided",
            )

    @property
    def _decisions(self) -> Decisions:
        return Decisions(self.prune, self.owed, self.to)


for_all = APIRouter(prefix="/configuration")
router = APIRouter(prefix="/configuration", route_class=reserved_for(Right.MANAGER))

MOST_FIELDS = 20_000
"""The most fields of a form: a graph of a hundred nodes that all lead to each other has ten thousand."""


async def _given(request: Request) -> Given:
    form = await request.form(max_fields=MOST_FIELDS)
    return {name: [each for each in form.getlist(name) if isinstance(each, str)] for name in form}


TheForm: TypeAlias = Annotated[Given, Depends(_given)]


class PlannedFile(BaseModel):
    """A bus file on its way to the bus, with all that its person has seen and decided.

    Args:
        base: the text that the person began with; if the bus has another one meanwhile, the edit is stale.
        section: the kind of the entry that is edited; empty for the whole file.
        stored: the name of that entry; empty for a new one.
        version: that of the plan that the person has seen.
    """

    file: str = ""
    base: str = ""
    section: Section | None = None
    stored: str = ""
    prune: bool = False
    owed: Owed | None = None
    to: str | None = None
    version: int | None = None

    @field_validator("section", "owed", "to", "version", mode="before")
    @classmethod
    def _nothing(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("file", "base")
    @classmethod
    def _with_plain_ends(cls, text: str) -> str:
        """Undo the line ends with which browsers send a text (HTML, "constructing the entry list")."""
        return text.replace("\r\n", "\n")

    @model_validator(mode="after")
    def _applicable(self) -> Self:
        """Refuse here what the action, or a database, would refuse later."""
        check_texts((self.base, self.stored))
        form_of(ApplyBusFile)(**self._fields)
        return self

    @property
    def action(self) -> ApplyBusFile:
        """The action that applies it."""
        return ApplyBusFile(**self._fields)

    @property
    def _fields(self) -> Mapping[str, object]:
        return self.model_dump(include={*ApplyBusFile.fields()})


def text_of(stored: Stored, section: Section | None, name: str) -> str:
    """Write the part of the bus that somebody edits; empty for an entry that does not exist."""
    if section is None:
        return bus_file.write(stored.in_use)
    entry = stored.in_use.section(section).get(name)
    return "" if entry is None else bus_file.write(BusSpec.holding(section, name, entry))


@router.get("/edit")
def edit(bus: TheBus, page: ThePage, section: Section, name: str = "") -> HTMLResponse:
    """Show the form of an entry, or of a new one without a name."""
    with bus.reading() as connection:
        stored = read_stored(connection)
        shown = read_entry(connection, section, name) if name else None
    draft = Draft.new(section) if shown is None else Draft.of(section, name, shown.entry)
    return _form(page, stored, draft, text_of(stored, section, name))


@router.post("/check")
def check(bus: TheBus, page: ThePage, given: TheForm) -> HTMLResponse:
    """Check a form while somebody fills it in: its problems by field, and its graph."""
    draft = _draft(given)
    with bus.reading() as connection:
        planned = ApplyBusFile(file=draft.text).planned(connection)
        in_use = read_stored(connection).in_use
    return page(
        "configuration/check.html",
        draft=draft,
        fields=list(draft.fields(in_use)),
        rows=list(draft.rows(in_use)),
        problems=draft.problems(planned.problems),
        planned=planned,
        drawing=_drawing(draft, in_use),
    )


@router.post("/edit")
def send(bus: TheBus, page: ThePage, given: TheForm) -> HTMLResponse:
    """Take a form: add or take away a row, or go on to the plan."""
    draft, base = _draft(given), _one(given, "base").replace("\r\n", "\n")
    with bus.reading() as connection:
        stored = read_stored(connection)
        planned = ApplyBusFile(file=draft.text).planned(connection)
    match _one(given, "do").split(":"):
        case ["add"]:
            return _form(page, stored, draft.with_row(), base)
        case ["remove", number]:
            return _form(page, stored, draft.without_row(number), base)
        case ["again"]:
            return _form(page, stored, draft, base)
    if planned.problems:
        problems = draft.problems(planned.problems)
        return _form(page, stored, draft, base, problems, HTTPStatus.UNPROCESSABLE_ENTITY)
    asked = PlannedFile(file=draft.text, base=base, section=draft.section, stored=draft.stored)
    return _plan(bus, page, asked, given=given)


@router.get("/remove")
def remove(bus: TheBus, page: ThePage, section: Section, name: str) -> HTMLResponse:
    """Show the plan that removes an entry."""
    base = bus.read(lambda connection: read_entry(connection, section, name).text)
    return _plan(bus, page, PlannedFile(file="", base=base, section=section, stored=name, prune=True))


@for_all.get("/file")
def whole(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show the whole bus file, for a manager in an editor."""
    text = bus.read(lambda connection: text_of(read_stored(connection), None, ""))
    return page("configuration/file.html", asked=PlannedFile(file=text, base=text, prune=True), problems=())


@router.post("/file")
def whole_again(page: ThePage, asked: Annotated[PlannedFile, Form()]) -> HTMLResponse:
    """Show the editor with a text that is not applied yet."""
    return page("configuration/file.html", asked=asked, problems=())


@router.post("/file/check")
def check_whole(bus: TheBus, page: ThePage, asked: Annotated[PlannedFile, Form()]) -> HTMLResponse:
    """Check the whole file while somebody writes it."""
    planned = bus.read(asked.action.planned)
    return page("configuration/file_check.html", planned=planned)


@router.post("/plan")
def plan(bus: TheBus, page: ThePage, asked: Annotated[PlannedFile, Form()]) -> HTMLResponse:
    """Show what a bus file would change; nothing is changed."""
    planned = bus.read(asked.action.planned)
    if planned.problems and asked.section is None:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        return page("configuration/file.html", status=status, asked=asked, problems=planned.problems)
    return _plan(bus, page, asked)


@router.post("/apply")
def apply(bus: TheBus, page: ThePage, visitor: TheVisitor, asked: Annotated[PlannedFile, Form()]) -> HTMLResponse:
    """Apply a plan; where it is not possible any more, show the plan as it would be now."""
    try:
        with bus.reading() as connection:
            if text_of(read_stored(connection), asked.section, asked.stored) != asked.base:
                raise Refused(
                    "somebody else has changed the same meanwhile, nothing was changed",
                    "see what was changed, and decide anew",
                    code="changed_meanwhile",
                )
        sentences = list(asked.action.carry_out(VisitorBus(bus, visitor)))
    except XbusError as error:
        return _plan(bus, page, asked, error=error)
    return page("configuration/applied.html", sentences=sentences, action=asked.action)


def _plan(
    bus: TheBus, page: MonitorPage, asked: PlannedFile, *, given: Given | None = None, error: XbusError | None = None
) -> HTMLResponse:
    with bus.reading() as connection:
        stored = read_stored(connection)
        if asked.prune and asked.section is not None:
            # One entry goes. Others may have added some since: the file has to name them, or they would go, too.
            text = bus_file.write(stored.in_use.without(asked.section, asked.stored))
            asked = asked.model_copy(update={"file": text})
        planned = ApplyBusFile(file=asked.file, prune=asked.prune).planned(connection)
    present = text_of(stored, asked.section, asked.stored)
    seen = asked.version if asked.version is not None else planned.plan.version
    return page(
        "configuration/plan.html",
        status=HTTPStatus.OK if error is None else HTTPStatus.CONFLICT,
        asked=asked,
        planned=planned,
        changes=shown_changes(planned),
        present=present,
        meanwhile=differences(asked.base, present) if asked.base != present else (),
        is_newer=seen != planned.plan.version,
        given=given,
        error=error,
        owed=list(Owed),
        roles=sorted(stored.in_use.roles),
        action=asked.action,
    )


def _form(
    page: MonitorPage,
    stored: Stored,
    draft: Draft,
    base: str,
    problems: Mapping[str, Sequence[str]] | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> HTMLResponse:
    return page(
        "configuration/form.html",
        status=status,
        draft=draft,
        base=base,
        fields=list(draft.fields(stored.in_use)),
        rows=list(draft.rows(stored.in_use)),
        problems=problems or {},
        drawing=_drawing(draft, stored.in_use),
        word=WORDS[draft.section],
        places=PLACES,
        services=sorted(stored.in_use.services),
    )


def _draft(given: Given) -> Draft:
    try:
        section = Section(_one(given, "section"))
    except ValueError as error:
        raise Refused("the form names no kind of entry", "open it again", code="bad_request") from error
    return Draft(section, _one(given, "stored"), given)


def _one(given: Given, name: str) -> str:
    return next(iter(given.get(name, ())), "")


def _drawing(draft: Draft, in_use: BusSpec) -> TypeDrawing:
    return drawing_of(EventTypeSpec(draft.name, False, {node.name: node for node in draft.nodes()}), in_use)


ACTIONS = (ApplyBusFile,)
