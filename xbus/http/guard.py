"""Turns away what comes without encryption, what is too large, and who sends too slowly."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xbus.errors import Refused
from xbus.http.problems import problem

LOOPBACK = ("127.0.0.0/8", "::1")

MOST_KNOWN_ADDRESSES = 1024
"""Addresses of clients of which is remembered whose they are: to read one is a good part of a request."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The bounds of a request.

    Args:
        body_bytes: the most bytes of its body.
        slow_seconds: the most seconds between two parts of its body.
    """

    body_bytes: int
    slow_seconds: float


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
        self._trusted = [ip_network(entry, strict=False) for entry in (*LOOPBACK, *trusted)]
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry a request out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_encrypted(scope, headers):
            await _to_https(scope, headers)(scope, receive, send)
        elif _declared_bytes(headers) > self._limits.body_bytes:
            await problem(self._too_large())(scope, receive, send)
        else:
            await self._app(scope, self._bounded(receive), send)

    def _is_encrypted(self, scope: Scope, headers: Headers) -> bool:
        if scope["scheme"] == "https":
            return True
        client = scope.get("client")
        if client is None or not is_in(client[0], self._trusted):
            return False
        return headers.get("x-forwarded-proto", "https").lower() == "https"

    def _bounded(self, receive: Receive) -> Receive:
        taken = 0
        is_whole = False

        async def bounded() -> Message:
            nonlocal taken, is_whole
            if is_whole:
                # Behind the body comes the end of the connection alone, at any time.
                return await receive()
            try:
                async with asyncio.timeout(self._limits.slow_seconds):
                    message = await receive()
            except TimeoutError:
                cause = f"no part of the request came for {self._limits.slow_seconds:g} seconds"
                raise Refused(cause, "send it faster", code="too_slow") from None
            is_whole = not message.get("more_body", False)
            taken += len(message.get("body", b""))
            if taken > self._limits.body_bytes:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> Refused:
        return Refused(
            f"the request has more than {self._limits.body_bytes} bytes", "send it in parts", code="body_too_large"
        )


def _to_https(scope: Scope, headers: Headers) -> RedirectResponse:
    host = headers.get("host", "localhost")
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    query = scope["query_string"].decode("latin-1")
    path = scope.get("raw_path", b"/").decode("latin-1")
    return RedirectResponse(f"https://{name}{path}{f'?{query}' if query else ''}", HTTPStatus.PERMANENT_REDIRECT)


def is_in(address: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Check whether an address is in one of some networks; an unreadable one is in none."""
    return _is_in(address, tuple(networks))


@lru_cache(MOST_KNOWN_ADDRESSES)
def _is_in(address: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)


def _declared_bytes(headers: Headers) -> int:
    told = headers.get("content-length", "0")
    return int(told) if told.isdecimal() and len(told) < 19 else 0
