"""Gives each error its status of HTTP, and turns away what is not encrypted, too large, packed or too slow."""

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from xbus.errors import Failed, Refused, XbusError
from xbus.web.connections import LOOPBACK, is_in, networks_of
from xbus.web.requests import PROBLEM_TYPE, RequestLimits, bounded, check_head, problem_details

_CODES: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "bad_body bad_event bad_name bad_subscription callback_not_allowed bad_token name_taken "
    "token_taken bad_request option_invalid place_invalid moment_invalid",
    HTTPStatus.UNAUTHORIZED: "token_missing session_unknown client_wanted clients_not_allowed",
    HTTPStatus.FORBIDDEN: "type_in_use type_not_allowed not_a_reader not_a_gateway reader_not_allowed type_not_read",
    HTTPStatus.NOT_FOUND: "not_subscribed no_page type_unknown unknown_type",
    HTTPStatus.METHOD_NOT_ALLOWED: "wrong_method",
    HTTPStatus.REQUEST_TIMEOUT: "too_slow",
    HTTPStatus.CONFLICT: "envelope_closed reply_ambiguous reply_unsupported reply_wanted no_reply lease_lost "
    "place_not_in_batch session_superseded",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "batch_too_large body_too_large envelope_too_large item_too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unknown_encoding packed_body unknown_format",
    HTTPStatus.TOO_MANY_REQUESTS: "slow_down",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "headers_too_large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "gateway_failed",
    HTTPStatus.BAD_GATEWAY: "reply_refused reply_failed bad_answer unknown_method",
    HTTPStatus.SERVICE_UNAVAILABLE: "reader_not_ready",
    HTTPStatus.GATEWAY_TIMEOUT: "reply_timed_out",
}

STATUSES: Mapping[str, HTTPStatus] = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""The codes with a status of their own. Of all others, a refusal is 422, and a failure 503."""

RETRY_SECONDS = 5
"""Seconds after which a client should repeat what could not be done, where the bus does not say."""

CHALLENGE = 'Bearer realm="xbus", Basic realm="xbus"'

log = logging.getLogger(__name__)


def status_of(error: XbusError) -> HTTPStatus:
    """Choose the status of an error."""
    if (status := STATUSES.get(error.code)) is not None:
        return status
    return HTTPStatus.SERVICE_UNAVAILABLE if isinstance(error, Failed) else HTTPStatus.UNPROCESSABLE_ENTITY


def problem(error: XbusError) -> Response:
    """Write the answer that tells an error; with the seconds to wait, where the same request may go well later."""
    error = _in_words_of_tokens(error)
    status = status_of(error)
    headers = {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = CHALLENGE
    elif status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        seconds = error.details.get("seconds", RETRY_SECONDS) if isinstance(error, Failed) else RETRY_SECONDS
        headers["retry-after"] = str(math.ceil(seconds))
    return Response(problem_details(error, status), status, headers, PROBLEM_TYPE)


def _in_words_of_tokens(error: XbusError) -> XbusError:
    # The front speaks of sessions, in which emitters log in. Callers by HTTP have a token, and can't log in.
    if error.code != "session_unknown":
        return error
    cause = "the API token is unknown or revoked, or its owner may not call this"
    advice = "ask an operator for one: xbus token new NAME --emitter LOGIN to send, --role LOGIN to read"
    return Refused(cause, advice, code=error.code)


def of_the_bus(request: Request, error: Exception) -> Response:
    """Answer an error of the bus."""
    assert isinstance(error, XbusError), "registered for these alone"
    return problem(error)


def of_http(request: Request, error: Exception) -> Response:
    """Answer a request for what is not there, or by a method that it does not know."""
    assert isinstance(error, HTTPException), "registered for these alone"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        told = Refused(f"{request.method} is not possible here", "see /v1/openapi.json", code="wrong_method")
    elif error.status_code == HTTPStatus.NOT_FOUND:
        told = Refused("there is nothing at this path", "see /v1/openapi.json", code="no_page")
    else:
        told = Refused(str(error.detail), "correct the request", code="bad_request")
    answer = problem(told)
    answer.headers.update(error.headers or {})
    return answer


def of_who_left(request: Request, error: Exception) -> Response:
    """Answer a client that left amid its request. Nobody hears it, and the figures count it."""
    return problem(Refused("the client left amid its request", "send it again", code="bad_request"))


def of_the_gateway(request: Request, error: Exception) -> Response:
    """Answer a fault of the gateway itself, which the log explains."""
    log.error("the gateway failed at %s", request.url.path, exc_info=error, extra={"action": "request_failed"})
    told = XbusError("the gateway has a fault", "the log of start_xbushttp says which", code="gateway_failed")
    return problem(told)


class Guard:
    """Redirects plain requests of other machines to https (RFC 9110, 308), and bounds the others.

    A web server in front of the gateway says by ``X-Forwarded-Proto`` how a request came to it. The gateway believes
    that of its own machine, and of the proxies that it trusts.

    Args:
        app: answers the rest.
        trusted: addresses and networks of proxies.
        limits: of each request.
    """

    def __init__(self, app: ASGIApp, *, trusted: Sequence[str], limits: RequestLimits) -> None:
        self._app = app
        self._trusted = networks_of((*LOOPBACK, *trusted))
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry a request out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_encrypted(scope, headers):
            await _to_https(scope, headers)(scope, receive, send)
            return
        try:
            check_head(headers, self._limits)
        except Refused as refusal:
            await problem(refusal)(scope, receive, send)
            return
        await self._app(scope, bounded(receive, self._limits), send)

    def _is_encrypted(self, scope: Scope, headers: Headers) -> bool:
        if scope["scheme"] == "https":
            return True
        client = scope.get("client")
        if client is None or not is_in(client[0], self._trusted):
            return False
        return headers.get("x-forwarded-proto", "https").lower() == "https"


def _to_https(scope: Scope, headers: Headers) -> RedirectResponse:
    host = headers.get("host", "localhost")
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    query = scope["query_string"].decode("latin-1")
    path = scope.get("raw_path", b"/").decode("latin-1")
    return RedirectResponse(f"https://{name}{path}{f'?{query}' if query else ''}", HTTPStatus.PERMANENT_REDIRECT)
