"""The means that the dialects share: the way to the broker, the clock, and the bounds of bodies."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from xbus.clock import Clock
from xbus.config import HttpSettings
from xbus.emitter.context import EmitterContext
from xbus.http.batches import BackConnection
from xbus.http.bodies import Body, Room
from xbus.http.figures import RoutemasterCounters
from xbus.http.front import FrontConnection
from xbus.http.request_tags import token_of
from xbus.http.tails import Tails
from xbus.http.targets import CallbackTargets


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
