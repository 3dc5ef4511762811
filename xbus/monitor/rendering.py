"""Pages of templates, and the parts of a request from which pages, actions and answers are made.

In a page every text of others is harmless, and moments look the same everywhere. ``application`` puts what requests
need into its state.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Annotated, TypeAlias
from urllib.parse import quote, urlencode

import jinja2
from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from markupsafe import Markup, escape

from xbus.admin.output import age, counted, moment
from xbus.ending import printable
from xbus.extras import installed_version
from xbus.monitor.bus import BusAccess, VisitorBus
from xbus.monitor.live.plots import RangeName
from xbus.monitor.live.sampler import Sampler
from xbus.monitor.people import Door, NotLoggedIn, Visitor
from xbus.rights import Right
from xbus.states import TONE_OF
from xbus.web.requests import client_is_known

PACKAGE = "xbus.monitor"


def templates() -> jinja2.Environment:
    """Make the templates of the monitor."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(PACKAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        moment=moment,
        counted=counted,
        short=shortened,
        tone=tone,
        command=shlex.join,
        json=_json,
        segment=_segment,
        exactly=_exactly,
    )
    environment.globals.update(version=installed_version(), assets=_assets_version(), link=link)
    return environment


@dataclass(frozen=True, slots=True)
class MonitorPage:
    """The answer to one request of one visitor.

    Args:
        templates: of the monitor.
        now: the moment, for ages.
        visitor: the person; None before the log-in.
        path: the path of the request, which the menu shows as the present one.
        is_fragment: whether only the part of the page is wanted that changes.
    """

    templates: jinja2.Environment
    now: datetime
    visitor: Visitor | None
    path: str
    is_fragment: bool = False

    def __call__(self, template: str, *, status: int = 200, **facts: object) -> HTMLResponse:
        """Make the page of a template.

        Args:
            status: the status of the answer.
            facts: the variables of the template.
        """
        now = self.now
        given = {
            "visitor": self.visitor,
            "Right": Right,
            "path": self.path,
            "frame": "fragment.html" if self.is_fragment else "page.html",
            "now": now,
            "age": lambda at: age(at, now),
            "until": lambda at: f"in {age(now, at)}" if at > now else "now",
            **facts,
        }
        return HTMLResponse(self.templates.get_template(template).render(given), status)


def tone(state: object) -> str:
    """Give the tone of a state; plain for others."""
    return TONE_OF.get(str(state), "plain")


def shortened(text: object, letters: int = 40) -> str:
    """Cut a text where it is long."""
    told = str(text)
    return told if len(told) <= letters else told[: letters - 1] + "…"


def link(path: str, **parameters: object) -> str:
    """Write an address of the monitor with parameters; those that are None or empty are left out."""
    pairs: list[tuple[str, object]] = []
    for name, value in parameters.items():
        values: Sequence[object] = value if isinstance(value, list | tuple) else [value]
        pairs += [(name, each) for each in values if each not in (None, "")]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def local(address: str) -> str:
    """Give an address of the monitor itself; a link of others leads nowhere else."""
    islocal = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if islocal and address.isprintable() else "/"


def _segment(name: object) -> str:
    """Write a name as one part of a path."""
    return quote(str(name), safe="")


def _harmless(value: object) -> object:
    """Write out what browsers obey without showing it, such as marks of direction; None is nothing."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else printable(str(value))


def _exactly(text: object) -> Markup:
    """Write a text as it is, for a field whose content comes back: nothing of it may change on the way.

    In a text area it stands on a line of its own, since a browser takes the first new line away.
    """
    return escape(text)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _assets_version() -> str:
    """Name the state of the assets, so that browsers keep them until they change."""
    digest = hashlib.sha256()
    for asset in sorted((files(PACKAGE) / "assets").iterdir(), key=lambda each: each.name):
        digest.update(asset.read_bytes())
    return digest.hexdigest()[:12]


SESSION_COOKIE = "xbus_session"

_BEARER = "bearer "

LIVE = "/live"
"""Below it a page that is open asks by itself, without its person."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the monitor that requests need.

    Args:
        bus: all that pages ask.
        door: knows persons.
        templates: of pages.
        sampler: knows how the bus is just now.
        is_encrypted: whether browsers come by HTTPS, so that cookies travel by nothing else.
    """

    bus: BusAccess
    door: Door
    templates: jinja2.Environment
    sampler: Sampler
    is_encrypted: bool


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
    """Find the person behind a request; it is looked up once.

    Raises:
        NotLoggedIn: there is none.
    """
    if (found := getattr(request.state, "visitor", None)) is None:
        found = request.state.visitor = look_visitor_up(request, parts)
        client_is_known(request.scope)
    return found


def look_visitor_up(request: Request, parts: Parts) -> Visitor:
    """Look again who is behind a request: a session may end while it is answered.

    Raises:
        NotLoggedIn: as of ``visitor_of``.
    """
    origin = origin_of(request)
    named = request.headers.get("authorization", "")
    if named.lower().startswith(_BEARER):
        return parts.door.known_program(named[len(_BEARER) :].strip(), origin)
    token = request.cookies.get(SESSION_COOKIE)
    if token is None:
        raise NotLoggedIn("nobody is logged in", "log in, or send a token: Authorization: Bearer TOKEN")
    return parts.door.known(token, origin, is_by_itself=request.url.path.startswith(LIVE))


TheVisitor: TypeAlias = Annotated[Visitor, Depends(visitor_of)]


def _actor(bus: TheBus, visitor: TheVisitor) -> VisitorBus:
    return VisitorBus(bus, visitor)


TheActor: TypeAlias = Annotated[VisitorBus, Depends(_actor)]


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
    return MonitorPage(parts.templates, parts.bus.now(), visitor, request.url.path, is_fragment(request))


ThePage: TypeAlias = Annotated[MonitorPage, Depends(_page)]


def is_fragment(request: Request) -> bool:
    """Check whether htmx asks for a part of the open page, and not for another whole page."""
    return "hx-request" in request.headers and "hx-history-restore-request" not in request.headers
