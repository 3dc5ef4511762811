"""The means that the dialects share: the way to the broker, the clock, bounds of bodies, and OpenAPI 3.1."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from xbus.clock import Clock
from xbus.config import HttpSettings
from xbus.emitter.context import EmitterContext
from xbus.http.batches import BackConnection
from xbus.http.bodies import Body, Room
from xbus.http.figures import RoutemasterCounters
from xbus.http.front import FrontConnection
from xbus.http.problems import STATUSES
from xbus.http.request_tags import token_of
from xbus.http.tails import Tails
from xbus.http.targets import CallbackTargets
from xbus.web.requests import PROBLEM_TYPE


@dataclass(frozen=True, slots=True)
class Gateway:
    """The means of all requests.

    Args:
        front: the connection to the broker's front.
        back: the connection to the broker's back.
        tails: what is followed at this moment.
        clock: tells the moment.
        room: bounds what all bodies keep.
        settings: the section ``[http]`` of the configuration.
        counters: count what publishers push.
        targets: refuses the URLs of subscribers that calls may not go to.
    """

    front: FrontConnection
    back: BackConnection
    tails: Tails
    clock: Clock
    room: Room
    settings: HttpSettings
    counters: RoutemasterCounters
    targets: CallbackTargets

    async def line(self, request: Request) -> EmitterContext:
        """Give the way to the front for the token of a request.

        Raises:
            Refused: there is no token (``token_missing``), or the front does not know it (``session_unknown``).
            Failed: the front does not answer.
        """
        return await self.front.line(token_of(request.headers))

    def body(self, request: Request) -> Body:
        """Give the body of a request, as it comes."""
        return Body(request.stream(), self.room, self.settings.max_document_bytes)

    async def json(self, request: Request) -> object:
        """Read the body of a request as JSON; see ``Body.json``."""
        with closing(self.body(request)) as body:
            return await body.json()


class JsonAnswer(JSONResponse):
    """An answer in JSON that ends its line, so that a terminal shows it well."""

    def render(self, content: object) -> bytes:
        """Write the content."""
        return super().render(content) + b"\n"


Answer = Callable[[Gateway, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A thing that a program may ask for.

    Args:
        method: of HTTP.
        path: of the request; braces stand around what varies.
        summary: its effect, for people.
        answer: carries it out.
        answers: the statuses of success, each with its meaning.
        problems: the codes with which it is refused most often.
        media_types: of the request's body; empty where it has none.
        parameters: headers that it reads, each with its meaning.
        query: options that it reads from the query, each with its meaning.
        produces: media types of what it answers, each with its JSON Schema; an empty one where that says nothing.
        needs_token: whether it refuses requests without a token.
        explains: whether the body of a refusal tells the problem.
    """

    method: str
    path: str
    summary: str
    answer: Answer
    answers: Mapping[int, str]
    problems: Sequence[str] = ()
    media_types: Sequence[str] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    produces: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    needs_token: bool = True
    explains: bool = True


PROBLEM = {
    "type": "object",
    "description": "A problem (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code", "next_step"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The cause."},
        "code": {"type": "string", "description": "The cause in a word that stays the same."},
        "next_step": {"type": "string", "description": "The advice."},
    },
}


def describe(operations: Iterable[Operation], version: str) -> dict[str, object]:
    """Describe all operations.

    Args:
        operations: of all dialects.
        version: of the bus.
    """
    paths: dict[str, dict[str, object]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Xbus by HTTP", "version": version},
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic", "description": "The token is the user name."},
            },
        },
    }


def _described(operation: Operation) -> dict[str, object]:
    described: dict[str, object] = {
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path),
            *_parameters("query", operation.query),
            *_parameters("header", operation.parameters),
        ],
        "responses": {**_answers(operation), **_problems(operation)},
        "security": [{"bearer": []}, {"basic": []}] if operation.needs_token else [],
    }
    if operation.media_types:
        content: dict[str, object] = {media_type: {} for media_type in operation.media_types}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(path: str) -> list[object]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _answers(operation: Operation) -> dict[str, object]:
    content = {media_type: {"schema": schema} if schema else {} for media_type, schema in operation.produces.items()}
    return {
        str(status): {"description": meaning, **({"content": content} if content and status != NO_CONTENT else {})}
        for status, meaning in operation.answers.items()
    }


def _parameters(place: str, parameters: Mapping[str, str]) -> list[object]:
    return [
        {"name": name, "in": place, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in parameters.items()
    ]


def _problems(operation: Operation) -> dict[str, object]:
    codes: dict[HTTPStatus, list[str]] = {}
    for code in operation.problems:
        codes.setdefault(_status(code), []).append(code)
    told = (
        {"content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}} if operation.explains else {}
    )
    return {
        str(status.value): {"description": f"{status.phrase}: {', '.join(found)}", **told}
        for status, found in sorted(codes.items())
    }


def _status(code: str) -> HTTPStatus:
    default = HTTPStatus.SERVICE_UNAVAILABLE if code in FAILURES else HTTPStatus.UNPROCESSABLE_ENTITY
    return STATUSES.get(code, default)


NO_CONTENT = HTTPStatus.NO_CONTENT

FAILURES = frozenset({"gateway_full", "journal_unavailable", "timed_out"})
"""The codes of operations that are failures, and have no status of their own."""
