"""Reads the token, the keys and the headers of the bus out of the head of a request. Pure."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers as RequestHeaders

from xbus.errors import Refused
from xbus.headers import HeaderValue

PREFIX = "x-xbus-"
ORDERING_KEY = "x-xbus-ordering-key"
PARTITION_KEY = "x-xbus-partition-key"
IDEMPOTENCY_KEY = "idempotency-key"
CONTENT_TYPE = "content-type"
TRACE_STATE = "tracestate"
"""The only one of these headers that may come in several lines (W3C Trace Context, 3.3.1)."""

TRACE = ("traceparent", TRACE_STATE)
"""Headers of W3C Trace Context, which have the same names at the bus."""


@dataclass(frozen=True, slots=True)
class RequestTags:
    """The keys and headers that a request gives its envelope."""

    key: str | None
    ordering_key: str | None
    partition_key: str | None
    headers: dict[str, HeaderValue] | None


def token_of(headers: RequestHeaders) -> str:
    """Read the API token: ``Bearer TOKEN``, or ``Basic`` with the token as user name and any password.

    Raises:
        Refused: the request has none (``token_missing``).
    """
    scheme, _, value = headers.get("authorization", "").partition(" ")
    token = value.strip()
    if scheme.lower() == "basic":
        try:
            token = base64.b64decode(token, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            token = ""
    elif scheme.lower() != "bearer":
        token = ""
    if not token:
        raise Refused(
            "the request has no API token",
            "send Authorization: Bearer TOKEN; an operator makes one by xbus token new",
            code="token_missing",
        )
    return token


def one_value(headers: RequestHeaders, name: str) -> str:
    """Read a header that may come once; empty where it does not come.

    Raises:
        Refused: it comes twice (``bad_request``).
    """
    values = headers.getlist(name)
    if len(values) > 1:
        raise Refused(f"the header {name} comes twice", "send it once", code="bad_request")
    return values[0].strip() if values else ""


def accepted(accept: str, offered: Sequence[str]) -> str:
    """Choose the media type that a client likes best, by its header Accept; the first where it does not say."""
    liked = {}
    for part in accept.lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        liked[media_type] = float(weight) if weight.replace(".", "", 1).isdecimal() else 0.0
    return max(offered, key=lambda media_type: liked.get(media_type, 0.0))


def tags_of(headers: RequestHeaders) -> RequestTags:
    """Read the keys and the headers of the bus.

    ``X-Xbus-Correlation-Id: 7`` is the header ``correlation_id``: names of HTTP have no case and no underscores.

    Raises:
        Refused: a value is no UTF-8, or a name comes twice (``bad_request``).
    """
    given: dict[str, str] = {}
    for name, value in _texts(headers):
        if name in given and name != TRACE_STATE:
            # Of two keys nobody knows which one the sender means.
            raise Refused(f"the header {name:.80} comes twice", "send it once", code="bad_request")
        given[name] = f"{given[name]},{value}" if name in given else value
    _refuse_one_name_in_two_forms(given)
    key = given.pop(IDEMPOTENCY_KEY, None)
    ordering_key, partition_key = given.pop(ORDERING_KEY, None), given.pop(PARTITION_KEY, None)
    named: dict[str, HeaderValue] = {
        name.removeprefix(PREFIX).replace("-", "_"): value for name, value in given.items()
    }
    return RequestTags(None if key is None else _unquoted(key), ordering_key, partition_key, named or None)


def _refuse_one_name_in_two_forms(given: Iterable[str]) -> None:
    """Refuse ``X-Xbus-A-B`` beside ``X-Xbus-A_B``: both are the header ``a_b``.

    Raises:
        Refused: ``bad_request``.
    """
    by_name: dict[str, str] = {}
    for name in given:
        other = by_name.setdefault(name.replace("-", "_"), name)
        if other != name:
            raise Refused(f"the headers {other:.80} and {name:.80} are one", "send one of them", code="bad_request")


def _texts(headers: RequestHeaders) -> Iterator[tuple[str, str]]:
    for raw_name, raw in headers.raw:
        name = raw_name.decode("latin-1").lower()
        if name == IDEMPOTENCY_KEY or name in TRACE or name.startswith(PREFIX):
            try:
                # Blanks around a value are no part of it (RFC 9110, 5.5), though servers leave some of them there.
                yield name, raw.strip(b" \t").decode()
            except UnicodeDecodeError:
                raise Refused(f"the header {name} is no UTF-8", "send it in UTF-8", code="bad_request") from None


def _unquoted(key: str) -> str:
    """Read a key with or without the quotes that the draft of the header Idempotency-Key has."""
    return key[1:-1] if len(key) >= 2 and key[0] == key[-1] == '"' else key
