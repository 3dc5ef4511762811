"""The forms of actions and questions, made of what their commands take.

The page ``/do/PATH`` shows what an action would do, and carries it out; ``POST /api/PATH`` carries it out for programs.
Both come from the class of the action, as its command does. A command that answers with JSON is a question: its answer
is that of ``GET /api/…``, too, and a page has the same filters.
"""

import inspect
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from inspect import Parameter, Signature, isclass
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

import click
from fastapi import APIRouter, Body, Form, Path, Query, Request
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

from xbus.admin.output import Answer, Output
from xbus.admin.signatures import UNSAID, BusAction, CommandBus, SecretText, Taken, asked_by, inner_of, is_many
from xbus.admin.signatures import Field as Field_
from xbus.errors import Refused
from xbus.monitor.queries import check_texts, read_by
from xbus.monitor.rendering import TheActor, ThePage, link, local, reserved_for
from xbus.monitor.rest import ObjectResponse
from xbus.rights import Right

T = TypeVar("T")

FieldType: TypeAlias = Any
"""The type of a field, as pydantic takes it."""


class FilledForm(BaseModel):
    """Fields as somebody filled them in."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, given: object) -> object:
        """Take fields that a form leaves empty as not given, and refuse texts that no database takes."""
        if not isinstance(given, dict):
            return given
        check_texts(given.values())
        return {name: value for name, value in given.items() if value != ""}


class ActionForm(FilledForm):
    """An action as somebody filled it in, in a form or as JSON."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    described: ClassVar[type[BusAction]]

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        self.made()
        return self

    def made(self) -> BusAction:
        """Make the action.

        Raises:
            ValueError: its fields don't go together.
            Refused: a text can't be read (``bad_moment``, ``bad_id``).
        """
        fields = self.described.fields().items()
        return self.described(**{name: _value(getattr(self, name), name, *field) for name, field in fields})


def _value(value: Any, name: str, how: Taken, kind: object) -> object:
    """Read the value of a field, as its command does.

    Raises:
        Refused: it can't be read (``bad_moment``, ``bad_id``).
    """
    if isinstance(value, Secret):
        return value.get_secret_value()
    for param in how.params(name, kind):
        if inner_of(kind) is datetime:
            return read_by(param.type, value, "bad_moment") if value else None
        if inner_of(kind) is str and value:
            for each in value if isinstance(value, list) else [value]:
                read_by(param.type, each, "bad_id")
    return value


class QueryForm(FilledForm):
    """The filters of a question in an address, by the names that its command gives them."""

    asked: ClassVar[click.Command]

    fields: ClassVar[Mapping[str, tuple[str, Field_]]]
    """The fields by their names in the address, with the names of the parameters."""

    def fill(self, make: Callable[..., T], *names: str) -> T:
        """Make something of the values of these parameters, or of all.

        Raises:
            Refused: one can't be read (``bad_moment``, ``bad_id``).
        """
        return make(**{name: value for name, value in self._values().items() if name in names or not names})

    def _values(self) -> dict[str, object]:
        read = {name: _value(getattr(self, each), name, *field) for each, (name, field) in self.fields.items()}
        return {name: None if value == "" else value for name, value in read.items()}

    def ask(self, bus: CommandBus, **more: object) -> Answer:
        """Ask as the command does.

        Args:
            more: further parameters of the command.

        Raises:
            Refused: a filter can't be read (``bad_moment``, ``bad_id``), or they don't go together (``bad_request``).
        """
        function, taken = asked_by(self.asked)
        answer = Answer(now=bus.now())
        given = self._values() | {name: _value(value, name, *taken[name]) for name, value in more.items()}
        for name, (_, kind) in taken.items():
            if kind in (CommandBus, Output):
                given[name] = bus if kind is CommandBus else answer
            given.setdefault(name, None)
        try:
            function(**given)
        except click.UsageError as error:
            raise Refused(error.message, "correct the request", code="bad_request") from error
        return answer

    def given(self) -> Mapping[str, object]:
        """Give the filters that select something, by their names."""
        return self.model_dump(exclude_defaults=True)

    def further(self, path: str, seen: Answer) -> str | None:
        """Give the address with which a list goes on; None where it ends."""
        after = seen.content["next"]
        return None if after is None else link(path, **{**self.given(), **after})


def query_of(asked: click.Command, *left_out: str, limit: int | None = None) -> Callable[..., QueryForm]:
    """Make the dependency that reads the filters of a question.

    Args:
        left_out: parameters of the command that the address does not have.
        limit: how many rows there are where nobody says it; None for as many as the command shows.
    """
    form = _query_form(asked, left_out, limit)

    def read(given: QueryForm) -> QueryForm:
        return given

    read.__annotations__["given"] = Annotated[form, Query()]
    return read


def _query_form(asked: click.Command, left_out: Collection[str], limit: int | None) -> type[QueryForm]:
    fields: dict[str, tuple[str, Field_]] = {}
    of_form: Any = {}
    for name, (how, kind) in asked_by(asked)[1].items():
        if kind in (CommandBus, Output) or how.is_local or name in left_out:
            continue
        (param,) = how.params(name, kind)
        shown = param.opts[0].lstrip("-").replace("-", "_")
        fields[shown] = name, (how, kind)
        type_, field = _form_field(name, how, kind, strips=False)
        if isinstance(param.default, int) and kind is int:
            # The command has this number by itself, so that nobody must give it.
            type_ = _limited(how, kind, param, is_required=False)
            field = Field(limit if limit and name == "limit" else param.default, description=how.about)
        of_form[shown] = type_, field
    made = create_model(f"{asked.name}_query", __base__=QueryForm, **of_form)
    made.asked, made.fields = asked, fields
    return made


def serve_answer(
    router: APIRouter, path: str, asked: click.Command, operation_id: str, limit: int | None = None
) -> None:
    """Add the GET request whose answer is that of a command in JSON.

    Args:
        path: may name a parameter of the command.
        operation_id: in the description of the interface.
        limit: as of :func:`query_of`.
    """
    function, taken = asked_by(asked)
    places = {name: field for name, field in taken.items() if f"{{{name}" in path}

    def answer(given: QueryForm, bus: CommandBus, **place: object) -> ObjectResponse:
        return ObjectResponse(given.ask(bus, **place).content)

    kinds = {"given": Annotated[_query_form(asked, places, limit), Query()], "bus": TheActor}
    for name, (how, kind) in places.items():
        (param,) = how.params(name, kind)
        # A number that no row has names none.
        one = int if kind is int else _limited(how, kind, param, is_required=True, strips=False)
        kinds[name] = Annotated[one, Path(description=how.about or None)]
    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in kinds.items()]
    answer.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # FastAPI reads it
    router.add_api_route(
        path,
        answer,
        response_class=ObjectResponse,
        operation_id=operation_id,
        summary=operation_id.replace("_", " ").capitalize(),
        description=(inspect.getdoc(function) or "").partition("\n\n")[0],
    )


@cache
def form_of(action: type[BusAction]) -> type[ActionForm]:
    """Make the form of an action."""
    fields: Any = {name: _form_field(name, *field) for name, field in action.fields().items()}
    made = create_model(action.__name__, __base__=ActionForm, __doc__=action.__doc__, **fields)
    made.described = action
    return made


LONGEST_TEXT = 4000
"""Characters of a text in a form, where the field says nothing else."""

LONGEST_FILTER = 255
"""Characters of a filter in an address, where the field says nothing else: names have no more."""

MOST_VALUES = 1000
"""Values of a field in one request. More make a transaction long, which others wait for."""


def _form_field(name: str, how: Taken, kind: object, *, strips: bool = True) -> tuple[object, object]:
    """Give the type and the description of a field for pydantic."""
    param = next(iter(how.params(name, kind)), None)
    is_required = how.is_required if param is None else param.required
    settings: dict[str, Any] = {"title": how.title or None, "description": how.about.replace("--", "") or None}
    one = _limited(how, kind, param, is_required=is_required, strips=strips)
    if is_many(kind):
        # A form sends nothing of boxes that are all empty.
        least = int(is_required and not how.title)
        return list[one], Field(**settings, default_factory=list, min_length=least, max_length=MOST_VALUES)  # type: ignore[valid-type]
    if is_required:
        return one, Field(**settings)
    if kind is bool:
        return bool, Field(False, **settings)
    is_text = kind is str or inner_of(kind) is datetime
    return (one, Field("", **settings)) if is_text else (one | None, Field(None, **settings))


def _limited(how: Taken, kind: object, param: object, *, is_required: bool, strips: bool = True) -> FieldType:
    """Give the type of one value of a field, with its limits.

    Args:
        strips: whether blanks around a text mean nothing, as in a form; in an address they are part of a name.
    """
    usual = LONGEST_TEXT if strips else LONGEST_FILTER
    one: Any = inner_of(kind)
    if one is int:
        of = getattr(param, "type", None)
        return Annotated[int, Field(ge=getattr(of, "min", 0), le=getattr(of, "max", None) or 2**53)]
    limits: Any = {"min_length": int(is_required), "max_length": how.longest or usual}
    if one is SecretText:
        # Exactly as it was typed: a blank at its end belongs to it.
        return Secret[Annotated[str, StringConstraints(strip_whitespace=False, **limits)]]
    if one in (str, datetime):
        return Annotated[str, StringConstraints(strip_whitespace=strips and how.asked != "file", **limits)]
    return one


def _way_to_ask(how: Taken, kind: object) -> str:
    if how.asked or kind is SecretText:
        return "password" if kind is SecretText else "text"
    if is_many(kind):
        return "several"
    return "check" if kind is bool else "choice" if _choices_of(kind) else "line"


def _choices_of(kind: object) -> list[str]:
    one = inner_of(kind)
    return [each.value for each in one if each is not Right.VIEWER] if isclass(one) and issubclass(one, Enum) else []


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


def asked_fields(action: type[BusAction], given: Mapping[str, str]) -> list[AskedField]:
    """Find the fields of an action that its form asks for.

    Args:
        given: values that stand in the form already.
    """
    of_form = form_of(action).model_fields
    return [
        AskedField(
            name,
            how.title,
            how.about,
            _way_to_ask(how, kind),
            given.get(name, ""),
            of_form[name].is_required(),
            _choices_of(kind),
        )
        for name, (how, kind) in action.fields().items()
        if how.title
    ]


DO = "/do"


class ActionAnswer(BaseModel):
    """The answer to an action: sentences that say what was done, and the command that does the same."""

    done: list[str]
    command: str


def serve_for_persons(router: APIRouter, kind: type[BusAction]) -> None:
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

    def perform(given: ActionForm, bus: TheActor, page: ThePage, back: str = "/") -> HTMLResponse:
        action = given.made()
        sentences = list(action.carry_out(bus))
        return page("done.html", action=action, sentences=sentences, back=local(back))

    # FastAPI reads the form by its class.
    perform.__annotations__["given"] = Annotated[form_of(kind), Form()]
    for method, endpoint, name in (("GET", ask, "ask"), ("POST", perform, "do")):
        router.add_api_route(
            f"{DO}/{kind.path}",
            endpoint,
            methods=[method],
            name=f"{name} {kind.path}",
            response_class=HTMLResponse,
            route_class_override=reserved_for(kind.right),
        )


def serve_for_programs(router: APIRouter, kind: type[BusAction]) -> None:
    """Add the POST request of an action."""

    def perform(given: ActionForm, bus: TheActor) -> ActionAnswer:
        action = given.made()
        return ActionAnswer(done=list(action.carry_out(bus)), command=shlex.join(action.command()))

    perform.__annotations__["given"] = Annotated[form_of(kind), Body()]
    router.add_api_route(
        f"/{kind.path}",
        perform,
        methods=["POST"],
        summary=kind.title,
        description=f"{kind.__doc__} It needs the right {kind.right}.",
        operation_id=kind.path.replace("/", "_").replace("-", "_"),
        route_class_override=reserved_for(kind.right),
    )


def _read(kind: type[BusAction], given: dict[str, object]) -> BusAction:
    try:
        return form_of(kind).model_validate(given).made()
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:10])
        raise Refused(
            f"the address can't be read ({wrong})", "go back and follow the link again", code="bad_request"
        ) from error


def _one(name: str, values: list[str], kind: type[BusAction]) -> object:
    """Give the only value of a field that takes one, else the list of them."""
    takes_several = is_many(kind.fields().get(name, (None, None))[1])
    return values if takes_several or len(values) > 1 else values[0]
