"""Turns away what comes without encryption, what is too large or packed, and who sends too slowly."""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from xbus.errors import Refused
from xbus.http.problems import problem
from xbus.web.connections import LOOPBACK, is_in, networks_of
from xbus.web.requests import RequestLimits, bounded, check_head


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
