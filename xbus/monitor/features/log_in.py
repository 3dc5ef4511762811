"""The page to log in, and the end of a session."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from xbus.broker.logins import Caller
from xbus.errors import CallError
from xbus.monitor.rendering import SESSION_COOKIE, MonitorPage, TheParts, TheVisitor, local, origin_of
from xbus.monitor.shield import LOG_IN, status_of

router = APIRouter()

MOST_LETTERS = 1024


@router.get(LOG_IN)
def ask(request: Request, parts: TheParts, then: str = "/") -> HTMLResponse:
    """Ask for name and password."""
    return _form(request, parts, then)


@router.post(LOG_IN)
async def enter(
    request: Request,
    parts: TheParts,
    name: Annotated[str, Form(max_length=MOST_LETTERS)],
    password: Annotated[str, Form(max_length=MOST_LETTERS)],
    then: Annotated[str, Form()] = "/",
) -> Response:
    """Begin a session."""
    try:
        token = await parts.door.enter(name, password, caller_of(request))
    except CallError as error:
        return _form(request, parts, then, name, error)
    answer = RedirectResponse(local(then), HTTPStatus.SEE_OTHER)
    answer.set_cookie(SESSION_COOKIE, token, httponly=True, samesite="lax", secure=parts.is_encrypted)
    return answer


@router.post("/log-out")
def leave(parts: TheParts, visitor: TheVisitor) -> Response:
    """End the session."""
    parts.door.leave(visitor)
    answer = RedirectResponse(LOG_IN, HTTPStatus.SEE_OTHER)
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="lax", secure=parts.is_encrypted)
    return answer


def caller_of(request: Request) -> Caller:
    """Tell by which connection and from which address a request came."""
    origin = origin_of(request)
    return Caller(f"{origin} {request.client.port if request.client else 0}".encode(), origin)


def _form(request: Request, parts: TheParts, then: str, name: str = "", error: CallError | None = None) -> HTMLResponse:
    page = MonitorPage(parts.renderer, parts.bus.now(), None, request.url.path)
    status = HTTPStatus.OK if error is None else status_of(error)
    return page("log_in.html", status=status, then=local(then), name=name, error=error)
