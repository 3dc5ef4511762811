"""Turns errors into answers: a page for a person, ``application/problem+json`` (RFC 9457) for a program."""

import logging
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from xbus.errors import Failed, JournalUnavailable, Refused, XbusError
from xbus.monitor.people import NotLoggedIn
from xbus.monitor.rendering import MonitorPage, is_fragment, link, parts_of
from xbus.monitor.shield import LOG_IN, BodyRefused, is_for_programs, problem

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
    page = MonitorPage(
        parts_of(request).renderer, parts_of(request).bus.now(), None, "", is_fragment=is_fragment(request)
    )
    return page("problem.html", status=status, error=error)


def _to_log_in(request: Request) -> Response:
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = link(LOG_IN, then=here if request.method == "GET" and here != "/" else None)
    if is_fragment(request):
        # A redirection would put the log-in into the middle of the page that is open.
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": link(LOG_IN)})
    return RedirectResponse(target, HTTPStatus.SEE_OTHER)
