"""Reads batches of readers for programs, and writes them in the formats of HTTP.

It calls the verbs of readers at the back by the token of the request. Leases, bounds and places are the broker's. The
ticket by which a program settles a batch holds all that the back wants to know.
"""

import asyncio
import base64
import hashlib
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from types import TracebackType
from uuid import UUID

import msgpack  # type: ignore[import-untyped]

from xbus.clock import Clock
from xbus.emitter.patience import EmitterPatience, insist
from xbus.errors import ProtocolError, Refused
from xbus.http.front import SIGNS
from xbus.ids import parse_uuid
from xbus.json_text import parse_json, without_halves
from xbus.json_views import has_one_name_twice, json_map
from xbus.reader import ReadEvent
from xbus.recipient.ways import MAX_MESSAGE_BYTES
from xbus.rpc.client import Client, open_client
from xbus.rpc.codec import Value, pack, unpack
from xbus.rpc.messages import BatchAnswer, ClaimedBatchMap
from xbus.rpc.shapes import AnswerReader


def plain(value: object) -> object:
    """Turn a value into one that JSON has: bytes become Base64, infinite numbers null, moments texts of ISO 8601.

    A map in which two keys would be the same name becomes a list of pairs.

    Raises:
        RecursionError: it is nested too deep.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return json_map(value, plain)
        case list() | tuple():
            return [plain(each) for each in value]
    return _moment_text(value)


def _moment_text(value: object) -> str:
    """Write a moment, also one of msgpack, by ISO 8601, and anything else as its text."""
    to_datetime: Callable[[], object] | None = getattr(value, "to_datetime", None)
    if to_datetime is not None:
        # msgpack has years that Python lacks.
        with suppress(OverflowError, ValueError):
            value = to_datetime()
    isoformat: Callable[[], str] = getattr(value, "isoformat", value.__str__)
    return isoformat()


LONGEST_NUMBER = 18
"""Digits; what the columns of the database take."""

_PLACE = re.compile(rf"\d{{1,{LONGEST_NUMBER}}}(:\d{{1,{LONGEST_NUMBER}}}){{0,2}}", re.ASCII)
_TICKET = re.compile(
    rf"(\d{{1,{LONGEST_NUMBER}}})\.(\d{{1,{LONGEST_NUMBER}}})\.([\d:]{{1,60}})\.([0-9a-f-]{{36}})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class CheckpointTicket:
    """Names a batch that is out.

    Args:
        range_id: its range.
        counter: that of the lease under which it is out.
        place: where it ends.
        program: the UUID of the program that has it.
    """

    range_id: int
    counter: int
    place: list[int]
    program: str

    @classmethod
    def of(cls, batch: ClaimedBatchMap, program: str) -> "CheckpointTicket":
        """Make the ticket of a batch."""
        return cls(batch["range"], batch["counter"], batch["to"], program)

    @classmethod
    def parse(cls, text: str) -> "CheckpointTicket":
        """Read a ticket.

        Raises:
            Refused: the text is no ticket (``bad_request``).
        """
        found = _TICKET.fullmatch(text)
        program = parse_uuid(found[4]) if found is not None else None
        if found is None or program is None or not _PLACE.fullmatch(found[3]):
            raise Refused(
                f"{text!r:.100} is no checkpoint", "send the text that came with the batch", code="bad_request"
            )
        return cls(int(found[1]), int(found[2]), parse_place(found[3]), str(program))

    def settled(self, place: list[int] | None = None) -> list[Value]:
        """Write what says that the batch is done: range, counter and place.

        Args:
            place: up to which it is done; None for all of it.
        """
        return [self.range_id, self.counter, [*(self.place if place is None else place)]]

    def __str__(self) -> str:
        return f"{self.range_id}.{self.counter}.{place_text(self.place)}.{self.program}"


def place_text(place: list[int]) -> str:
    """Write a place as people do: ``1234``, or ``1234:0:500``."""
    return ":".join(map(str, place)) if any(place[1:]) else str(place[0])


def parse_place(text: str) -> list[int]:
    """Read a place as :func:`place_text` writes it.

    Raises:
        Refused: the text is no place (``place_invalid``).
    """
    if not _PLACE.fullmatch(text):
        raise Refused(f"{text!r:.60} is no place in the log", "write 1234 or 1234:0:500", code="place_invalid")
    numbers = [int(number) for number in text.split(":")]
    return [*numbers, *[0] * (3 - len(numbers))]


MOST_WAIT_SECONDS = 30.0
"""Seconds that a request may wait. More meets the time-outs of web servers in between."""

LONGEST_PROGRAM = 100

AT = "from:"
"""An event id with this before its place says where to go on, where no item came yet."""

_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)?", re.ASCII)
_AGE = re.compile(r"-?(\d{1,9}(?:\.\d{1,9})?)(min|h|d|w)", re.ASCII)
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def seconds_of(text: str) -> float:
    """Read how long a request may wait: ``20s``, ``500ms``, or seconds alone.

    Raises:
        Refused: it says something else, or too much (``bad_request``).
    """
    found = _SECONDS.fullmatch(text)
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else -1.0
    if not 0 <= seconds <= MOST_WAIT_SECONDS:
        advice = f"write 20s or 500ms; at most {MOST_WAIT_SECONDS:g}s"
        raise Refused(f"wait is {text!r:.40}", advice, code="bad_request")
    return seconds


def program_id(token: str, name: str) -> str:
    """Make the id of a program from its name; the same at each gateway.

    It depends on the token, so that nobody without it can meet the program. A UUID stands for itself.

    Args:
        token: of its requests.
        name: that it gives itself; empty for the only program of the token.

    Raises:
        Refused: the name is too long (``bad_request``).
    """
    if len(name) > LONGEST_PROGRAM:
        raise Refused(
            f"the name of the program has {len(name)} characters",
            f"give it one of at most {LONGEST_PROGRAM}",
            code="bad_request",
        )
    given = parse_uuid(name) if name else None
    digest = hashlib.sha256(f"{token}\0{name}".encode()).digest()
    return str(given or UUID(bytes=digest[:16], version=5))


def start_of(text: str, now: datetime) -> Value:
    """Read where to begin: an age such as ``-1h``; anything else is for the back to read.

    Raises:
        Refused: the age goes back behind all time (``moment_invalid``).
    """
    age = _AGE.fullmatch(text)
    if age is None:
        # A plus sign in a query is a blank.
        return text.replace(" ", "+")
    try:
        return (now - timedelta(**{_UNITS[age[2]]: float(age[1])})).isoformat()
    except OverflowError:
        raise Refused(f"{text} is longer ago than time goes back", "write oldest", code="moment_invalid") from None


def start_after(event_id: str) -> Value:
    """Read where to go on behind an event with this id: behind the item that it names.

    Raises:
        Refused: it is none of ours (``place_invalid``).
    """
    if event_id.startswith(AT):
        return [*parse_place(event_id.removeprefix(AT))]
    position, event, item = parse_place(event_id)
    return [position, event, item + 1]


JSON, NDJSON, MSGPACK = "application/json", "application/x-ndjson", "application/msgpack"

BATCH_FORMATS = (JSON, NDJSON, MSGPACK)
"""The formats of batches by their media types, the one first that comes where nothing is asked for."""


def batch_body(media_type: str, batch: ClaimedBatchMap, events: Sequence[ReadEvent], ticket: CheckpointTicket) -> bytes:
    """Write a batch.

    Args:
        media_type: one of ``BATCH_FORMATS``.
        batch: as the back gave it.
        events: those of the batch.
        ticket: settles it.
    """
    if media_type == NDJSON:
        return "".join([f"{line}\n" for _, line in chain.from_iterable(map(item_lines, events))]).encode()
    facts: dict[str, object] = {
        "checkpoint": str(ticket),
        "range": batch["range"],
        "from": place_text(batch["from"]),
        "to": place_text(batch["to"]),
        "repeated": batch["repeated"],
    }
    if media_type == MSGPACK:
        return _packed_map(facts, {"events": _packed_list([_packed_event(event) for event in events])})
    return f"{_with(facts, 'events', _list(map(_json_event, events)))}\n".encode()


def item_lines(event: ReadEvent) -> Iterable[tuple[list[int], str]]:
    """Write each item as an object of JSON with the facts of its event, behind its place."""
    before = _json(_facts(event))[:-1]
    for index, data in enumerate(event.data, event.first_index):
        yield [event.position, event.index, index], f'{before},"index":{index},"value":{_json_item(data)}}}'


def sse_event(place: list[int], line: str) -> str:
    """Write an item as an event of server-sent events; its id is its place."""
    return f"id: {place_text(place)}\ndata: {line}\n\n"


def sse_mark(place: list[int]) -> str:
    """Write where to go on, without an event: whoever loses the connection now loses nothing."""
    return f"id: {AT}{place_text(place)}\n\n"


def _facts(event: ReadEvent) -> dict[str, object]:
    return {
        "envelope_id": event.envelope_id,
        "event_id": event.id,
        "type": event.type_name,
        "emitter": event.emitter,
        "position": event.position,
        "event": event.index,
        "sealed_at": event.sealed_at.isoformat(),
        "key": event.key,
        "ordering_key": event.ordering_key,
        "partition_key": event.partition_key,
        "headers": dict(event.headers),
    }


def _json_event(event: ReadEvent) -> str:
    return _with({**_facts(event), "first_index": event.first_index}, "items", _list(map(_json_item, event.data)))


def _packed_event(event: ReadEvent) -> bytes:
    items = _packed_list([data if _is_packed(data) else pack(data) for data in event.data])
    return _packed_map({**_facts(event), "first_index": event.first_index}, {"items": items})


def _packed_map(facts: dict[str, object], parts: dict[str, bytes]) -> bytes:
    packer = msgpack.Packer(default=str)
    head: bytes = packer.pack_map_header(len(facts) + len(parts))
    pairs = [packer.pack(name) + packer.pack(value) for name, value in facts.items()]
    return b"".join([head, *pairs, *(packer.pack(name) + part for name, part in parts.items())])


def _packed_list(members: Sequence[bytes]) -> bytes:
    head: bytes = msgpack.Packer().pack_array_header(len(members))
    return b"".join([head, *members])


def _is_packed(data: bytes) -> bool:
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1)
    unpacker.feed(data)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException):
        return False
    ends_at: int = unpacker.tell()
    return ends_at == len(data)


def _json_item(data: bytes) -> str:
    try:
        return _json(_value(data))
    except RecursionError:
        # It is nested too deep for JSON.
        return _json(data)


def _value(data: bytes) -> object:
    """Read an item; its bytes where they are neither msgpack that the bus unpacks nor JSON."""
    try:
        return unpack(data)
    except ProtocolError:
        pass
    try:
        return parse_json(data)
    except ValueError:
        return data


def _json(value: object) -> str:
    if not has_one_name_twice(value):
        try:
            return without_halves(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
        except (TypeError, ValueError):
            pass
    return without_halves(json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")))


def _with(facts: dict[str, object], name: str, written: str) -> str:
    return f'{_json(facts)[:-1]},"{name}":{written}}}'


def _list(members: Iterable[str]) -> str:
    return f"[{','.join(members)}]"


class BackConnection:
    """The connection to the back, to be used in ``async with``.

    Args:
        address: of the back.
        clock: tells the time.
        insist_seconds: how long a call is repeated that gets no answer. Each verb of readers may be repeated.
    """

    def __init__(self, address: str, clock: Clock, insist_seconds: float) -> None:
        self._address = address
        self._clock = clock
        self._insist_seconds = insist_seconds
        self._exit = ExitStack()
        self._client: Client

    async def __aenter__(self) -> "BackConnection":
        self._client = open_client(self._exit, self._address, self._clock, SIGNS, MAX_MESSAGE_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    async def call(self, verb: str, token: str, *arguments: object, wait: float = 0.0) -> Value:
        """Call a verb.

        Args:
            verb: its name.
            token: of the request.
            arguments: behind the token.
            wait: seconds that the back itself may wait.

        Raises:
            Refused: the back refuses it.
            Failed: no answer came for as long as the gateway insists.
        """

        async def attempt(seconds: float) -> Value:
            return await self._client.call(verb, token, *arguments, timeout=seconds + wait)

        patience = EmitterPatience(self._insist_seconds, self._clock)
        return await insist(patience, self._insist_seconds, attempt)


POLL_SECONDS = 2.0
"""Seconds that a call to the back waits. More notice later that the client is gone, or that its token is revoked."""

_BATCH = AnswerReader("xbus.read_batch", BatchAnswer)


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request for a batch.

    Args:
        reader: the name of the reader.
        token: of the request.
        program: the UUID of the program, as text.
        wait: seconds to wait while nothing is there.
        bounds: the options ``max_items`` and ``max_bytes`` of the back, where the program wants less.
        done: what is settled first.
    """

    reader: str
    token: str
    program: str
    wait: float
    bounds: dict[str, Value]
    done: CheckpointTicket | None


async def next_batch(
    back: BackConnection, request: BatchRequest, is_gone: Callable[[], Awaitable[bool]]
) -> BatchAnswer:
    """Wait for a batch.

    Each call to the back is a sign of life of the program, so its leases last while it waits. Nobody calls any more
    for a program that is gone.

    Args:
        back: hands it out.
        request: says which one.
        is_gone: checks whether the answer would reach nobody.

    Raises:
        Refused: the back refuses it; ``lease_lost`` where the program has lost what it settles.
        Failed: the back does not answer.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + request.wait
    options: dict[str, Value] = {"reader": request.reader, **request.bounds}
    done = request.done
    while True:
        wait = min(POLL_SECONDS, max(0.0, until - loop.time()))
        asked = {**options, "wait": wait}
        if done is not None:
            asked["done"] = done.settled()
        answer = _BATCH.read(await back.call("xbus.read_batch", request.token, request.program, asked, wait=wait))
        done = None
        if answer["batch"] is not None or loop.time() >= until or await is_gone():
            return answer
