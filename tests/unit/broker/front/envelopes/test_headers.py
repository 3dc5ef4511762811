"""Headers at the front: checked as they come, and compared where an envelope is sent again."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from tests.support.groups import LIMITS
from tests.unit.broker.front.conftest import REPLY_SECONDS, Desk
from tests.unit.broker.front.envelopes.test_keyed import TwoEmitters, answered, code_of, forget_all, prune
from xbus.broker.front.front import Front
from xbus.broker.front.verbs.batches import FrontBatchVerbs
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_log
from xbus.headers import NO_TAGS, EventTags, pack_headers
from xbus.ids import numbered_event_id
from xbus.rpc.codec import pack_items

HEADERS = pack_headers({"correlation_id": "17", "shard": 7})
SAME = msgpack.packb({"shard": 7, "correlation_id": "17"})
OTHER = pack_headers({"correlation_id": "18", "shard": 7})
TAGS = EventTags(pack_headers({"schema": "notes/3"}), "client 7")
OF_EVENT = TAGS._asdict()


class Sender:
    """Sends one envelope with one event, with a key or without."""

    def __init__(self, verbs: FrontBatchVerbs, token: str, key: str | None, envelope_id: str, event_id: str) -> None:
        self.verbs = verbs
        self.token = token
        self.key = key
        self.envelope_id = envelope_id
        self.event_id = event_id

    def options(self, headers: bytes | None) -> Any:
        given = {"key": self.key, "headers": headers}
        return {name: value for name, value in given.items() if value is not None} or None

    async def start(self, headers: bytes | None = HEADERS) -> str:
        start = self.verbs.start_envelope(self.token, self.envelope_id, self.options(headers))
        self.envelope_id = await answered(start)
        if self.key is not None:
            self.event_id = str(numbered_event_id(uuid.UUID(self.envelope_id), 1))
        return self.envelope_id

    async def event(self, of_event: Any = OF_EVENT) -> str:
        start = self.verbs.start_event(self.token, self.envelope_id, self.event_id, "notes", 1, of_event)
        started: str = await answered(start)
        return started

    async def rest(self) -> Any:
        ids = (self.token, self.envelope_id)
        await answered(self.verbs.send_items(*ids, self.event_id, 0, 1, pack_items([b"a"])))
        await answered(self.verbs.end_event(*ids, self.event_id, 1))
        return await self.seal()

    async def seal(self) -> Any:
        return await answered(self.verbs.end_envelope(self.token, self.envelope_id, 1))

    async def send(self, headers: bytes | None = HEADERS, of_event: Any = OF_EVENT) -> Any:
        await self.start(headers)
        await self.event(of_event)
        return await self.rest()

    async def put(self, headers: bytes | None = HEADERS, of_event: Any = OF_EVENT) -> Any:
        event = [self.event_id, "notes", 1, pack_items([b"a"]), *([of_event] if of_event else [])]
        put = self.verbs.put_envelope(self.token, self.envelope_id, [event], self.options(headers))
        return await answered(put)


Senders = Callable[[str], Sender]


@pytest.fixture
def verbs(front: Front, north: Desk, south: Desk) -> FrontBatchVerbs:
    sessions = TwoEmitters({"north": north.emitter_id, "south": south.emitter_id})
    return FrontBatchVerbs(front, sessions, LIMITS, 60, REPLY_SECONDS)


@pytest.fixture(params=["without a key", "with a key"])
def sender(request: pytest.FixtureRequest, verbs: FrontBatchVerbs) -> Senders:
    """Sessions of one emitter that send the same envelope."""
    key = "order 17" if request.param == "with a key" else None
    ids = (str(uuid.uuid4()), str(uuid.uuid4()))
    return lambda session: Sender(verbs, f"north.{session}", key, *ids)


@pytest.mark.parametrize("send", [Sender.send, Sender.put])
async def test_the_same_again_gets_the_first_receipt(
    sender: Senders, front: Front, journal: Journal, send: Callable[..., Awaitable[Any]]
) -> None:
    receipt = await send(sender("1"))
    assert await sender("2").put() == receipt
    # In any order of the names: the bus keeps them in its own.
    assert await send(sender("2"), SAME) == receipt
    forget_all(front)
    assert await send(sender("3")) == receipt
    (envelope,) = await journal.read(read_log, 0, 10)
    assert (envelope.head.headers, [event.tags for event in envelope.events]) == (HEADERS, [TAGS])


@pytest.mark.parametrize("send", [Sender.send, Sender.put])
@pytest.mark.parametrize(
    "other",
    [
        {"headers": OTHER},
        {"headers": None},
        {"of_event": None},
        {"of_event": OF_EVENT | {"headers": OTHER}},
        {"of_event": OF_EVENT | {"partition_key": "client 8"}},
        {"of_event": {"headers": TAGS.headers}},
    ],
)
async def test_other_headers_of_a_sealed_envelope_are_refused(
    sender: Senders, front: Front, journal: Journal, send: Callable[..., Awaitable[Any]], other: dict[str, Any]
) -> None:
    receipt = await sender("1").send()
    code = "content_differs" if sender("1").key is None else "key_reused"
    assert await code_of(send(sender("2"), **other)) == code
    forget_all(front)
    assert await code_of(send(sender("3"), **other)) == code
    if code == "key_reused":
        await prune(journal, receipt["envelope_id"])
        assert await code_of(send(sender("4"), **other)) == code
        forget_all(front)
    assert await send(sender("5")) == receipt


async def test_other_headers_of_an_open_envelope_are_refused(sender: Senders) -> None:
    first, second = sender("1"), sender("2")
    await first.start()
    await first.event()
    assert await code_of(second.start(OTHER)) == "content_differs"
    second.envelope_id, second.event_id = first.envelope_id, first.event_id
    assert await code_of(second.event(None)) == "content_differs"
    if second.key is not None:
        # Also the end that was sent ahead: it must not seal what this session did not send.
        assert await code_of(second.rest()) == "content_differs"
        await second.start()
        await second.event()
    assert (await second.rest())["position"] == 1


async def test_what_a_crash_left_open_is_known_with_its_headers(
    sender: Senders, front: Front, journal: Journal
) -> None:
    first = sender("1")
    await first.start()
    await first.event()
    ids = (first.token, first.envelope_id, first.event_id)
    await answered(first.verbs.send_items(*ids, 0, 1, pack_items([b"a"])))
    forget_all(front)
    second = sender("2")
    assert await code_of(second.start(OTHER)) == "content_differs"
    receipt = await sender("2").send()
    (envelope,) = await journal.read(read_log, 0, 10)
    assert (envelope.head.headers, [event.tags for event in envelope.events]) == (HEADERS, [TAGS])
    forget_all(front)
    assert await sender("3").put() == receipt


async def test_without_headers_nothing_is_kept(sender: Senders, journal: Journal) -> None:
    await sender("1").send(None, {})
    (envelope,) = await journal.read(read_log, 0, 10)
    assert (envelope.head.headers, [event.tags for event in envelope.events]) == (None, [NO_TAGS])


@pytest.mark.parametrize("send", [Sender.send, Sender.put])
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"headers": b"\x90"}, "bad_header"),
        ({"headers": msgpack.packb({"traceparent": "x"})}, "bad_header"),
        ({"headers": msgpack.packb({"a": "x" * 4096})}, "headers_too_large"),
        ({"of_event": {"headers": b""}}, "bad_header"),
        ({"of_event": {"headers": msgpack.packb({"a": None})}}, "bad_header"),
        ({"of_event": {"headers": msgpack.packb({"a": "x" * 4096})}}, "headers_too_large"),
        ({"of_event": {"partition_key": ""}}, "bad_partition_key"),
        ({"of_event": {"partition_key": "x" * 256}}, "bad_partition_key"),
        ({"of_event": {"colour": "red"}}, "wrong_arguments"),
        ({"of_event": {7: "red"}}, "wrong_arguments"),
    ],
)
async def test_bad_headers_are_refused(
    sender: Senders,
    journal: Journal,
    send: Callable[..., Awaitable[Any]],
    given: dict[str, Any],
    code: str,
) -> None:
    assert await code_of(send(sender("1"), **given)) == code
    assert await journal.read(read_log, 0, 10) == []
    assert (await sender("2").put())["position"] == 1


async def test_headers_count_as_bytes_of_the_envelope(verbs: FrontBatchVerbs, journal: Journal) -> None:
    """Else an emitter could fill the journal by events without items."""
    large = pack_headers({"a": "x" * 4000})
    events = LIMITS.envelope_bytes // 4000 + 1
    ids = [str(uuid.uuid4()) for _ in range(events)]
    envelope_id = str(uuid.uuid4())

    async def one_by_one() -> None:
        await answered(verbs.start_envelope("north.1", envelope_id, {"headers": large}))
        for event_id in ids:
            start = verbs.start_event("north.1", envelope_id, event_id, "notes", 0, {"headers": large})
            await answered(start)

    whole: list[Any] = [[event_id, "notes", 0, b"", {"headers": large}] for event_id in ids]
    put = verbs.put_envelope("north.1", str(uuid.uuid4()), whole[:-1], {"headers": large})
    assert await code_of(answered(put)) == "envelope_too_large"
    assert await code_of(one_by_one()) == "envelope_too_large"


async def test_an_event_of_a_put_takes_a_map_of_options(sender: Senders) -> None:
    for wrong in ("headers", [b""], 7):
        assert await code_of(sender("1").put(of_event=wrong)) == "wrong_arguments"
