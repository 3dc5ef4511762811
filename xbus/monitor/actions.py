"""The things that a person may do: each is a class, which says the right it needs and the command that does the same.

The page ``/do/PATH`` shows what an action would do, and carries it out; ``POST /api/PATH`` carries it out for programs.
Both come from the class.
"""

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args, get_origin

from fastapi import APIRouter, Body, Form, Request
from fastapi.responses import HTMLResponse
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Secret,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)

from xbus.admin.signatures import UNSAID, BusAction, Taken, inner_of, is_many
from xbus.broker.journal.people import Right
from xbus.errors import Refused
from xbus.monitor.bus import VisitorBus
from xbus.monitor.queries import check_texts, read_by
from xbus.monitor.rendering import TheActor, ThePage, local, reserved_for

ASKED = "asked"

_WORD = re.compile(r"(?:(--[a-z-]+)=)?\{(\w+)\}|(\S+)")


def asked(
    how: str, title: str, description: str | None = None, *, choices: Sequence[str] = (), **limits: Any
) -> object:
    """Have a form ask for a field.

    Args:
        how: ``line``, ``text``, ``check``, ``choice``, ``several`` (values with spaces between) or ``password``.
        title: above its place in the form.
        description: below it.
        choices: all that may be chosen.
        **limits: of pydantic's ``Field``.
    """
    shown: dict[str, Any] = {ASKED: how, "choices": [*choices]} if choices else {ASKED: how}
    return Field(title=title, description=description, json_schema_extra=shown, **limits)


Reason: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=4000), asked("line", "Reason", "Why; it is kept.")
]
"""A reason that a person must give."""

OptionalReason: TypeAlias = Annotated[str, asked("line", "Reason", "Why; it is kept.", max_length=4000)]
"""A reason that a person may give."""

TypedSecret: TypeAlias = Secret[
    Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, max_length=1024)]
]
"""A secret exactly as it was typed: a blank at its end belongs to it."""


class Action(BaseModel, ABC):
    """A thing that a person may do, with all that it needs to be done.

    The form asks a person for the fields that are :func:`asked`; the others come with the link to the form.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    path: ClassVar[str]
    """Its place below ``/do`` and ``/api``."""

    title: ClassVar[str]
    """Its name as an order: ``Resume``."""

    words: ClassVar[str]
    """The ``xbus`` command that does the same, with ``{field}`` or ``--option={field}`` for the value of a field."""

    right: ClassVar[Right] = Right.MANAGER
    """The right that a person needs for it. An action that names none is nobody else's."""

    is_final: ClassVar[bool] = False
    """True if nobody can take the action back."""

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, given: object) -> object:
        """Take fields that a form leaves empty as not given, and refuse texts that no database takes."""
        if not isinstance(given, dict):
            return given
        check_texts(given.values())
        return {name: value for name, value in given.items() if value != ""}

    def command(self) -> list[str]:
        """Give the words of the ``xbus`` command that does the same; empty fields have none."""
        found = ["xbus"]
        for option, name, word in _WORD.findall(self.words):
            value = getattr(self, name) if name else word
            each = value if isinstance(value, list) else [value]
            if value is True:
                found.append(option)
            elif value not in (None, "") and value is not False:
                found += [text for one in each for text in ([option, str(one)] if option else [str(one)])]
        return found

    def typed(self, bus: VisitorBus) -> Mapping[str, str]:
        """Give the text that stands in fields of the form before a person types, by their names.

        Raises:
            Refused: it can't be done by a form.
        """
        return {}

    @abstractmethod
    def preview(self, bus: VisitorBus) -> Iterable[str]:
        """Say in sentences what it would do; what a form still asks for is :data:`UNSAID`.

        Raises:
            Refused: it can't be done.
        """

    @abstractmethod
    def carry_out(self, bus: VisitorBus) -> Iterable[str]:
        """Do it, and say in sentences what was done.

        Raises:
            Refused: it can't be done any more; nothing was.
        """


class CommandAction(Action):
    """An action that a command carries out, too: its class there describes it."""

    described: ClassVar[type[BusAction]]

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        self.made()
        return self

    def made(self) -> BusAction:
        """Make the action.

        Raises:
            ValueError: its fields don't go together.
            Refused: a moment can't be read (``bad_moment``).
        """
        return self.described(**{name: self._value(name, *field) for name, field in self.described.fields().items()})

    def _value(self, name: str, how: Taken, kind: object) -> object:
        value = getattr(self, name)
        if is_moment(kind):
            (param,) = how.params(name, kind)
            return read_by(param.type, value, "bad_moment") if value else None
        return value

    def command(self) -> list[str]:
        return self.made().command()

    def typed(self, bus: VisitorBus) -> Mapping[str, str]:
        return self.made().typed(bus)

    def preview(self, bus: VisitorBus) -> Iterable[str]:
        return self.made().preview(bus)

    def carry_out(self, bus: VisitorBus) -> Iterable[str]:
        return self.made().carry_out(bus)


def action_of(act: type[BusAction]) -> type[CommandAction]:
    """Make the action of the monitor of one of the command line."""
    fields: Any = {name: _form_field(name, *field) for name, field in act.fields().items()}
    made = create_model(act.__name__, __base__=CommandAction, __doc__=act.__doc__, **fields)
    made.described, made.path, made.title, made.right, made.is_final = act, act.path, act.title, act.right, act.is_final
    return made


def is_moment(kind: object) -> bool:
    """Check whether a field is a moment, which a form has as a text."""
    return datetime in get_args(kind)


MOST_VALUES = 1000
"""Values of a field in one request. More make a transaction long, which others wait for."""


def _form_field(name: str, how: Taken, kind: object) -> tuple[object, object]:
    """Give the type and the description of a field for pydantic."""
    param = next(iter(how.params(name, kind)), None)
    is_required = param is not None and param.required
    one: Any = inner_of(kind)
    if one is int:
        of = getattr(param, "type", None)
        one = Annotated[int, Field(ge=getattr(of, "min", 1), le=getattr(of, "max", 2**63 - 1))]
    elif one in (str, datetime):
        one = Annotated[str, StringConstraints(min_length=int(is_required), max_length=how.longest)]
    settings: dict[str, Any] = {"title": how.title or None, "description": how.about or None}
    if how.title:
        choices = [each.value for each in Right if each is not Right.VIEWER] if one is Right else []
        settings["json_schema_extra"] = {ASKED: "several" if is_many(kind) else "line", "choices": choices}
    if is_many(kind):
        # A form sends nothing of boxes that are all empty.
        least = int(is_required and not how.title)
        return list[one], Field(**settings, default_factory=list, min_length=least, max_length=MOST_VALUES)
    if is_required:
        return one, Field(**settings)
    is_text = kind is str or is_moment(kind)
    return (one, Field("", **settings)) if is_text else (one | None, Field(None, **settings))


@dataclass(frozen=True, slots=True)
class AskedField:
    """A field of a form.

    Args:
        kind: the way in which it is asked.
        choices: the values among which a person chooses.
    """

    name: str
    title: str
    description: str
    kind: str
    value: str
    is_required: bool
    choices: Sequence[str] = ()


def asked_fields(kind: type[Action], given: Mapping[str, str]) -> list[AskedField]:
    """Find the fields of an action that its form asks for.

    Args:
        given: values that stand in the form already.
    """
    return [
        AskedField(
            name,
            field.title or name,
            field.description or "",
            str(how[ASKED]),
            given.get(name, ""),
            field.is_required(),
            _choices(how),
        )
        for name, field in kind.model_fields.items()
        if isinstance(how := field.json_schema_extra, dict) and ASKED in how
    ]


def _choices(how: Mapping[str, object]) -> list[str]:
    choices = how.get("choices")
    return [str(each) for each in choices] if isinstance(choices, list) else []


DO = "/do"


class ActionAnswer(BaseModel):
    """The answer to an action: sentences that say what was done, and the command that does the same."""

    done: list[str]
    command: str


def serve_for_persons(router: APIRouter, kind: type[Action]) -> None:
    """Add the form of an action, and the request that carries it out."""

    def ask(request: Request, bus: TheActor, page: ThePage) -> HTMLResponse:
        given = dict(request.query_params)
        back = local(given.pop("back", "/"))
        if any(field.kind == "password" and field.name in given for field in asked_fields(kind, given)):
            raise Refused("a password stands in the address", "type it into the form", code="bad_request")
        asked = {field.name for field in asked_fields(kind, given)}
        unsaid = {field.name: UNSAID for field in asked_fields(kind, given) if field.is_required}
        lists = {name: request.query_params.getlist(name) for name in given}
        action = _read(kind, {**unsaid, **{name: _one(name, values, kind) for name, values in lists.items()}})
        return page(
            "action.html",
            action=action,
            sentences=list(action.preview(bus)),
            fields=asked_fields(kind, {**action.typed(bus), **given}),
            fixed=[(name, value) for name, values in lists.items() if name not in asked for value in values],
            back=back,
        )

    def perform(request: Request, action: Action, bus: TheActor, page: ThePage, back: str = "/") -> HTMLResponse:
        sentences = list(action.carry_out(bus))
        return page("done.html", action=action, sentences=sentences, back=local(back))

    # FastAPI reads the form by the class of the action.
    perform.__annotations__["action"] = Annotated[kind, Form()]
    place = f"{DO}/{kind.path}"
    router.add_api_route(
        place,
        ask,
        methods=["GET"],
        name=f"ask {kind.path}",
        response_class=HTMLResponse,
        route_class_override=reserved_for(kind.right),
    )
    router.add_api_route(
        place,
        perform,
        methods=["POST"],
        name=f"do {kind.path}",
        response_class=HTMLResponse,
        route_class_override=reserved_for(kind.right),
    )


def serve_for_programs(router: APIRouter, kind: type[Action]) -> None:
    """Add the POST request of an action."""

    def perform(action: Action, bus: TheActor) -> ActionAnswer:
        return ActionAnswer(done=list(action.carry_out(bus)), command=shlex.join(action.command()))

    perform.__annotations__["action"] = Annotated[kind, Body()]
    router.add_api_route(
        f"/{kind.path}",
        perform,
        methods=["POST"],
        summary=kind.title,
        description=f"{kind.__doc__} It needs the right {kind.right}.",
        operation_id=kind.path.replace("/", "_").replace("-", "_"),
        route_class_override=reserved_for(kind.right),
    )


def _read(kind: type[Action], given: dict[str, object]) -> Action:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:10])
        raise Refused(
            f"the address can't be read ({wrong})", "go back and follow the link again", code="bad_request"
        ) from error


def _one(name: str, values: list[str], kind: type[Action]) -> object:
    """Give the only value of a field that takes one, else the list of them."""
    field = kind.model_fields.get(name)
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    takes_several = any(get_origin(each) is list for each in kinds)
    return values if takes_several or len(values) > 1 else values[0]
