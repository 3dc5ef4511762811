"""Parts of each request that pages, actions and the REST interface take as arguments: the bus, the visitor, the page.

``application`` puts what these need into the state of the application.
"""

from collections.abc import Callable, Coroutine
from typing import Annotated, TypeAlias

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from xbus.broker.journal.people import Right
from xbus.monitor.bus import BusAccess
from xbus.monitor.live.plots import RangeName
from xbus.monitor.live.sampler import Sampler
from xbus.monitor.people import Door, NotLoggedIn, Visitor
from xbus.monitor.rendering import MonitorPage, Renderer
from xbus.web.requests import client_is_known

SESSION_COOKIE = "xbus_session"

_BEARER = "bearer "

LIVE = "/live"
"""Below it a page that is open asks by itself, without its person."""


class Parts:
    """The parts of the monitor that requests need.

    Args:
        bus: all that pages ask.
        door: knows persons.
        renderer: makes pages.
        sampler: knows how the bus is just now.
        is_encrypted: whether browsers come by HTTPS, so that cookies travel by nothing else.
    """

    def __init__(self, bus: BusAccess, door: Door, renderer: Renderer, sampler: Sampler, *, is_encrypted: bool) -> None:
        self.bus = bus
        self.door = door
        self.renderer = renderer
        self.sampler = sampler
        self.is_encrypted = is_encrypted


def parts_of(request: Request) -> Parts:
    """Give the parts that the application was built with."""
    parts: Parts = request.app.state.parts
    return parts


TheParts: TypeAlias = Annotated[Parts, Depends(parts_of)]


def origin_of(request: Request) -> str:
    """Give the address from which a request came."""
    return request.client.host if request.client else ""


def _bus(parts: TheParts) -> BusAccess:
    return parts.bus


TheBus: TypeAlias = Annotated[BusAccess, Depends(_bus)]


def _sampler(parts: TheParts) -> Sampler:
    return parts.sampler


TheSampler: TypeAlias = Annotated[Sampler, Depends(_sampler)]

TheRange: TypeAlias = Annotated[RangeName, Query(alias="range")]
"""The range of plots that a page shows."""


def visitor_of(request: Request, parts: TheParts) -> Visitor:
    """Find the person behind a request.

    Raises:
        NotLoggedIn: there is none.
    """
    if (found := getattr(request.state, "visitor", None)) is None:
        found = request.state.visitor = _found_visitor(request, parts)
        client_is_known(request.scope)
    return found


def _found_visitor(request: Request, parts: Parts) -> Visitor:
    origin = origin_of(request)
    named = request.headers.get("authorization", "")
    if named.lower().startswith(_BEARER):
        return parts.door.known_program(named[len(_BEARER) :].strip(), origin)
    token = request.cookies.get(SESSION_COOKIE)
    if token is None:
        raise NotLoggedIn("nobody is logged in", "log in, or send a token: Authorization: Bearer TOKEN")
    return parts.door.known(token, origin, is_by_itself=request.url.path.startswith(LIVE))


TheVisitor: TypeAlias = Annotated[Visitor, Depends(visitor_of)]


def reserved_for(right: Right) -> type[APIRoute]:
    """Make the class of routes for which a person needs a right.

    FastAPI reads the body before it resolves who asks. These routes refuse before that: nobody else has a large body
    read, kept and parsed.
    """

    class ReservedRoute(APIRoute):
        """Refuses all others before it reads what they send."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
            """Carry a request out if its person has the right."""
            handle = super().get_route_handler()

            async def reserved(request: Request) -> Response:
                visitor = await run_in_threadpool(visitor_of, request, parts_of(request))
                visitor.check(right)
                return await handle(request)

            return reserved

    return ReservedRoute


def _page(request: Request, parts: TheParts, visitor: TheVisitor) -> MonitorPage:
    return MonitorPage(parts.renderer, parts.bus.now(), visitor, request.url.path, is_fragment=is_fragment(request))


ThePage: TypeAlias = Annotated[MonitorPage, Depends(_page)]


def is_fragment(request: Request) -> bool:
    """Check whether htmx asks for a part of the open page, and not for another whole page."""
    return "hx-request" in request.headers and "hx-history-restore-request" not in request.headers
