"""Bounds the bodies of requests in bytes and in time, and describes errors to programs (RFC 9457). Pure."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from xbus.ending import printable_lines
from xbus.errors import Refused, XbusError

PROBLEM_TYPE = "application/problem+json"


def problem_details(error: XbusError, status: HTTPStatus) -> str:
    """Write the body of an answer that tells an error: its cause, its code, and what to do."""
    content = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status,
        "detail": printable_lines(error.cause),
        "code": error.code,
        "next_step": printable_lines(error.next_step),
    }
    return f"{json.dumps(content, separators=(',', ':'))}\n"


KNOWN = "xbus_client_is_known"
"""The entry of a request's state by which its connection hears that the client is known."""

LONGEST_NUMBER = 18
"""Digits of a length that is read; a longer one is beyond every limit."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The bounds of a request.

    Args:
        body_bytes: the most bytes of its body.
        slow_seconds: the most seconds between two parts of its body.
        body_seconds: the most seconds for the whole of it; None for no limit.
    """

    body_bytes: int
    slow_seconds: float
    body_seconds: float | None = None


def client_is_known(scope: Scope) -> None:
    """Tell the connection of a request that its client has shown who it is."""
    if note := scope.get("state", {}).get(KNOWN):
        note()


def check_head(headers: Headers, limits: RequestLimits) -> None:
    """Let a request pass that says nothing against its body.

    Raises:
        Refused: ``body_too_large``, or ``packed_body`` for a body that is packed.
    """
    # A list of encodings may come in several lines (RFC 9110, 5.3).
    encoding = ", ".join(headers.getlist("content-encoding") or ["identity"]).strip().lower()
    if encoding != "identity":
        raise Refused(
            f"the body has the encoding {encoding:.40}, which is not unpacked here",
            "send it as it is, without Content-Encoding",
            code="packed_body",
        )
    told = headers.get("content-length", "0")
    if told.isdecimal() and (len(told) > LONGEST_NUMBER or int(told) > limits.body_bytes):
        raise _too_large(limits)


def _itself(refusal: Refused) -> Exception:
    return refusal


def bounded(receive: Receive, limits: RequestLimits, raised_as: Callable[[Refused], Exception] = _itself) -> Receive:
    """Make the way by which an application gets a body within its bounds.

    Args:
        receive: gives its parts.
        limits: the bounds.
        raised_as: makes the exception of a refusal, ``body_too_large`` or ``too_slow``.
    """
    taken = 0
    is_whole = False
    loop = asyncio.get_running_loop()
    ends_at = None if limits.body_seconds is None else loop.time() + limits.body_seconds

    async def receive_within_bounds() -> Message:
        nonlocal taken, is_whole
        if is_whole:
            # Behind the body comes the end of the connection alone, at any time.
            return await receive()
        late_at = loop.time() + limits.slow_seconds
        try:
            async with asyncio.timeout_at(late_at if ends_at is None else min(late_at, ends_at)):
                message = await receive()
        except TimeoutError:
            cause = f"no part of the request came for {limits.slow_seconds:g} seconds"
            if ends_at is not None and ends_at <= late_at:
                cause = f"the request took more than {limits.body_seconds:g} seconds"
            raise raised_as(Refused(cause, "send it faster", code="too_slow")) from None
        is_whole = not message.get("more_body", False)
        taken += len(message.get("body", b""))
        if taken > limits.body_bytes:
            raise raised_as(_too_large(limits))
        return message

    return receive_within_bounds


def _too_large(limits: RequestLimits) -> Refused:
    return Refused(f"the request has more than {limits.body_bytes} bytes", "send it in parts", code="body_too_large")
