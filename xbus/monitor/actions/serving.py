"""Serves actions: as forms with a preview for persons, and as POST requests for programs."""

import shlex
from typing import Annotated, get_args, get_origin

from fastapi import APIRouter, Body, Form, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ValidationError

from xbus.errors import Refused
from xbus.monitor.actions.action import UNSAID, Action, asked_fields
from xbus.monitor.rendering import local
from xbus.monitor.requests import TheBus, ThePage, TheVisitor, reserved_for

DO = "/do"


class ActionAnswer(BaseModel):
    """The answer to an action: sentences that say what was done, and the command that does the same."""

    done: list[str]
    command: str


def serve_for_persons(router: APIRouter, kind: type[Action]) -> None:
    """Add the form of an action, and the request that carries it out."""

    def ask(request: Request, bus: TheBus, page: ThePage) -> HTMLResponse:
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

    def perform(
        request: Request, action: Action, bus: TheBus, visitor: TheVisitor, page: ThePage, back: str = "/"
    ) -> HTMLResponse:
        sentences = list(action.carry_out(bus, visitor))
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

    def perform(action: Action, bus: TheBus, visitor: TheVisitor) -> ActionAnswer:
        return ActionAnswer(done=list(action.carry_out(bus, visitor)), command=shlex.join(action.command()))

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
