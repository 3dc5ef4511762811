"""Protects browsers, turns away requests of other sites, and turns errors into answers.

A person gets a page, a program ``application/problem+json`` (RFC 9457).
"""

import logging
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xbus.ending import printable_lines
from xbus.errors import Failed, JournalUnavailable, Refused, XbusError
from xbus.monitor.people import NotLoggedIn
from xbus.monitor.rendering import SESSION_COOKIE, MonitorPage, is_fragment, link, parts_of
from xbus.web.connections import STRANGER_SECONDS
from xbus.web.requests import PROBLEM_TYPE, RequestLimits, bounded, check_head, problem_details

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing runs and nothing is fetched but what the monitor itself serves (Content-Security-Policy Level 3)."""

HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

MOST_BODY_BYTES = 64 * 1024 * 1024
"""The largest request: a file to upload, which goes to the disk while it comes."""

MOST_PARSED_BYTES = 24 * 1024 * 1024
"""The largest form or JSON: an item of 16 MB with its escapes. More keep all others waiting while they are parsed."""

MOST_BYTES_OF_STRANGERS = 16 * 1024

SLOW_SECONDS = 30.0
"""Seconds between two parts of a body. Fewer cut slow lines off, more let a request that has stopped keep its place."""

STATUSES = {
    "cross_origin": HTTPStatus.FORBIDDEN,
    "bad_request": HTTPStatus.BAD_REQUEST,
    "body_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "too_slow": HTTPStatus.REQUEST_TIMEOUT,
    "packed_body": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
}
"""The refusals of requests that get no further, with their statuses."""

API = "/api"

LOG_IN = "/log-in"
"""The only place that takes a body of anybody."""

_FILES = "multipart/form-data"


class Shield:
    """Adds headers to each answer, and turns away what another site has a browser send, and what is too large.

    A browser says by ``Sec-Fetch-Site`` whose page makes a request (Fetch Metadata Request Headers); an old one says at
    least the ``Origin``. A program sends neither, and has no cookie that somebody could abuse.

    Args:
        app: answers the rest.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry a request out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = self._guarded(send, is_asset=scope["path"].startswith("/assets/"))
        if scope["method"] == "HEAD":
            # As GET without the content (RFC 9110, 9.3.2).
            scope, answer = {**scope, "method": "GET"}, _without_content(answer)
        limits = _limits(scope["path"], headers)
        if refusal := _refusal(scope, headers, limits):
            await refusal(scope, receive, answer)
        else:
            await self._app(scope, bounded(receive, limits, BodyRefused), answer)

    def _guarded(self, send: Send, *, is_asset: bool) -> Send:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                found.update(HEADERS)
                # A page shows what a person may see: no cache keeps it.
                found["cache-control"] = "public, max-age=31536000, immutable" if is_asset else "no-store"
            await send(message)

        return answer


def _refusal(scope: Scope, headers: Headers, limits: RequestLimits) -> Response | None:
    """Make the answer to a request that gets no further; None for all others."""
    try:
        if scope["method"] not in SAFE_METHODS and is_foreign(headers):
            raise Refused("this request comes from a page of another site", "correct the request", code="cross_origin")
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise Refused("the address has a zero character", "correct the request", code="bad_request")
        check_head(headers, limits)
    except Refused as refusal:
        status = STATUSES[refusal.code]
        if is_for_programs(scope["path"]):
            return problem(refusal, status)
        text = f"The monitor refuses: {printable_lines(refusal.cause)}. [{refusal.code}]\n"
        return PlainTextResponse(text, status)
    return None


def is_for_programs(path: str) -> bool:
    """Check whether an address is one of the REST interface."""
    return path == API or path.startswith(f"{API}/")


def problem(error: XbusError, status: HTTPStatus) -> Response:
    """Make the answer to a program whose request was refused."""
    headers = {"www-authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else None
    return Response(problem_details(error, status), status, headers, PROBLEM_TYPE)


def _without_content(send: Send) -> Send:
    """Send the begin of an answer alone."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body"})

    return answer


def is_foreign(headers: Headers) -> bool:
    """Check whether a page of another site has a browser make a request."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and _host_of(origin) != headers.get("host")


def _host_of(origin: str) -> str:
    """Give the host of an origin, with its port; nothing for one that no browser writes."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _limits(path: str, headers: Headers) -> RequestLimits:
    """Choose the bounds of a request: whoever shows neither session nor token sends a log-in at most, and soon."""
    shows_something = "authorization" in headers or f"{SESSION_COOKIE}=" in headers.get("cookie", "")
    if path == LOG_IN or not shows_something:
        return RequestLimits(MOST_BYTES_OF_STRANGERS, SLOW_SECONDS, STRANGER_SECONDS)
    is_file = headers.get("content-type", "").startswith(_FILES)
    return RequestLimits(MOST_BODY_BYTES if is_file else MOST_PARSED_BYTES, SLOW_SECONDS)


class BodyRefused(HTTPException):
    """The refusal of a body, as an exception that FastAPI lets pass while it reads a form.

    Args:
        refusal: of the body.
    """

    def __init__(self, refusal: Refused) -> None:
        super().__init__(STATUSES[refusal.code], refusal.cause)
        self.refusal = refusal


_STATUS_OF_CODE = {
    "forbidden": HTTPStatus.FORBIDDEN,
    "login_refused": HTTPStatus.FORBIDDEN,
    "cross_origin": HTTPStatus.FORBIDDEN,
    "no_page": HTTPStatus.NOT_FOUND,
    "batch_not_parked": HTTPStatus.NOT_FOUND,
    "wrong_method": HTTPStatus.METHOD_NOT_ALLOWED,
    "slow_down": HTTPStatus.TOO_MANY_REQUESTS,
    "place_invalid": HTTPStatus.UNPROCESSABLE_ENTITY,
    "moment_invalid": HTTPStatus.UNPROCESSABLE_ENTITY,
    "place_beyond_end": HTTPStatus.UNPROCESSABLE_ENTITY,
}

log = logging.getLogger(__name__)


def status_of(error: XbusError) -> HTTPStatus:
    """Choose the status of HTTP for an error."""
    if isinstance(error, NotLoggedIn):
        return HTTPStatus.UNAUTHORIZED
    if (status := _STATUS_OF_CODE.get(error.code)) is not None:
        return status
    if error.code.startswith("bad_"):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    if error.code.startswith(("unknown_", "no_")) or error.code.endswith("_unknown"):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, JournalUnavailable | Failed):
        return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.CONFLICT


def of_the_bus(request: Request, error: Exception) -> Response:
    """Answer an error of the bus."""
    assert isinstance(error, XbusError), "registered for these alone"
    return _answer(request, error, status_of(error))


def of_http(request: Request, error: Exception) -> Response:
    """Answer a request for a page that is not there, or by a method that it does not know."""
    assert isinstance(error, HTTPException), "registered for these alone"
    if isinstance(error, BodyRefused):
        told: XbusError = error.refusal
    elif error.status_code == HTTPStatus.NOT_FOUND:
        told = Refused("there is no such page", "start at /", code="no_page")
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        told = Refused(f"{request.method} is not possible here", "see /api/openapi.json", code="wrong_method")
    else:
        told = Refused(str(error.detail), "correct the request", code="bad_request")
    return _answer(request, told, HTTPStatus(error.status_code), error.headers)


def of_arguments(request: Request, error: Exception) -> Response:
    """Answer arguments of a wrong form; each is named."""
    assert isinstance(error, RequestValidationError), "registered for these alone"
    wrong = "; ".join(f"{'.'.join(map(str, each['loc'][1:])) or 'it'}: {each['msg']}" for each in error.errors()[:10])
    told = Refused(f"the request can't be read ({wrong})", "correct what is named", code="bad_request")
    return _answer(request, told, HTTPStatus.UNPROCESSABLE_ENTITY)


def of_the_program(request: Request, error: Exception) -> Response:
    """Answer a fault of the monitor itself, which the log explains."""
    log.error("the monitor failed at %s", request.url.path, exc_info=error, extra={"action": "page_failed"})
    told = XbusError("the monitor has a fault", "the log of start_xbusmonitor says which", code="monitor_failed")
    return _answer(request, told, HTTPStatus.INTERNAL_SERVER_ERROR)


def _answer(request: Request, error: XbusError, status: HTTPStatus, headers: object = None) -> Response:
    if is_for_programs(request.url.path):
        return problem(error, status)
    if status is HTTPStatus.UNAUTHORIZED:
        return _to_log_in(request)
    parts = parts_of(request)
    page = MonitorPage(parts.templates, parts.bus.now(), None, "", is_fragment(request))
    return page("problem.html", status=status, error=error)


def _to_log_in(request: Request) -> Response:
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = link(LOG_IN, then=here if request.method == "GET" and here != "/" else None)
    if is_fragment(request):
        # A redirection would put the log-in into the middle of the page that is open.
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": link(LOG_IN)})
    return RedirectResponse(target, HTTPStatus.SEE_OTHER)
