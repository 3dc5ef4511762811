"""Editing the configuration: a form for each entry, an editor of the whole bus file, and the plan of both."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Self, TypeAlias

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from xbus.admin import bus_file
from xbus.broker.journal.configuration import BusSpec, EventTypeSpec, Section, Stored, read_stored
from xbus.broker.journal.configuration.owed import Owed
from xbus.broker.journal.people import Right
from xbus.errors import Refused, XbusError
from xbus.monitor.actions.configuration import ApplyBusFile
from xbus.monitor.drawings.type_graph import TypeDrawing
from xbus.monitor.pages.configuration.differences import differences, shown_changes
from xbus.monitor.pages.configuration.entries import PLACES, WORDS, drawing_of, read_entry
from xbus.monitor.pages.configuration.forms import Draft, Given
from xbus.monitor.reading import check_texts
from xbus.monitor.rendering import MonitorPage
from xbus.monitor.requests import TheBus, ThePage, TheVisitor, reserved_for

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

    model_config = ConfigDict(extra="ignore")

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
        _ = self.action
        return self

    @property
    def action(self) -> ApplyBusFile:
        """The action that applies it."""
        return ApplyBusFile(file=self.file, prune=self.prune, owed=self.owed, to=self.to, version=self.version)


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
        planned = ApplyBusFile(file=draft.text).plan(connection)
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
        planned = ApplyBusFile(file=draft.text).plan(connection)
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
    with bus.reading() as connection:
        base = read_entry(connection, section, name).text
    return _plan(bus, page, PlannedFile(file="", base=base, section=section, stored=name, prune=True))


@for_all.get("/file")
def whole(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show the whole bus file, for a manager in an editor."""
    with bus.reading() as connection:
        text = text_of(read_stored(connection), None, "")
    return page("configuration/file.html", asked=PlannedFile(file=text, base=text, prune=True), problems=())


@router.post("/file")
def whole_again(page: ThePage, asked: Annotated[PlannedFile, Form()]) -> HTMLResponse:
    """Show the editor with a text that is not applied yet."""
    return page("configuration/file.html", asked=asked, problems=())


@router.post("/file/check")
def check_whole(bus: TheBus, page: ThePage, asked: Annotated[PlannedFile, Form()]) -> HTMLResponse:
    """Check the whole file while somebody writes it."""
    planned = bus.read(asked.action.plan)
    return page("configuration/file_check.html", planned=planned)


@router.post("/plan")
def plan(bus: TheBus, page: ThePage, asked: Annotated[PlannedFile, Form()]) -> HTMLResponse:
    """Show what a bus file would change; nothing is changed."""
    planned = bus.read(asked.action.plan)
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
        sentences = list(asked.action.carry_out(bus, visitor))
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
        planned = ApplyBusFile(file=asked.file, prune=asked.prune).plan(connection)
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
