"""Headers and partition keys reach the recipients of our SDK, whichever way an envelope takes; others get none."""

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bulk_worker import GRAPH, Halves
from tests.support.bus import PASSWORD, add_bus
from tests.support.old_clients import OldConsumer, OldWorker
from tests.support.operating import Operator, isolate_bad_items, run_xbus, xbus
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.headers import Headers
from xbus.recipient import Consumer, Envelope, Event, Item, Refusal, Worker

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MOMENT = datetime(2030, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
OF_ENVELOPE: dict[str, Any] = {"traceparent": TRACEPARENT, "shard": 7, "own": "envelope"}
OF_EVENT: dict[str, Any] = {"source_time": MOMENT, "ratio": 0.5, "urgent": True, "own": "event", "text": "größe"}


@dataclass(frozen=True)
class Seen:
    """What a recipient knew at an event's start."""

    type_name: str
    of_envelope: Headers
    of_event: Headers
    partition_key: str | None

    @classmethod
    def of(cls, event: Event) -> "Seen":
        return cls(event.type_name, dict(event.envelope.headers), dict(event.headers), event.partition_key)


class Noting(Consumer):
    """Notes what it knows at each event's start, by the position of its envelope."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.items = 0
        self.commits = 0

    def on_event_start(self, event: Event) -> None:
        self.seen.append(Seen.of(event))

    def on_item(self, event: Event, item: Item) -> None:
        self.items += 1

    def commit(self, envelope: Envelope) -> None:
        self.commits += 1


class Capitals(Worker):
    """Writes texts in capitals."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def on_event_start(self, event: Event) -> None:
        self.seen.append(Seen.of(event))

    def on_item(self, event: Event, item: Item) -> Any:
        yield item.value.upper()


def plain(type_name: str) -> Seen:
    return Seen(type_name, {}, {}, None)


async def send_all(emitter: AsyncEmitter, large: list[str]) -> None:
    await emitter.put("test_event", ["plain"])
    await emitter.put("test_event", ["small"], headers=OF_ENVELOPE, partition_key="client 7")
    await emitter.put("test_event", large, headers=OF_ENVELOPE)
    async with emitter.envelope(headers=OF_ENVELOPE) as envelope:
        async with envelope.event("test_event", headers=OF_EVENT, partition_key="client 8") as event:
            await event.send("a")
        async with envelope.event("other") as event:
            for item in large:
                await event.send(item)
    async with emitter.envelope() as envelope:
        async with envelope.event("other") as event:
            await event.send("a")
        async with envelope.event("test_event", headers=OF_EVENT) as event:
            await event.send("b")


BOTH = OF_ENVELOPE | OF_EVENT
WANTED = [
    plain("test_event"),
    Seen("test_event", OF_ENVELOPE, OF_ENVELOPE, "client 7"),
    Seen("test_event", OF_ENVELOPE, OF_ENVELOPE, None),
    Seen("test_event", OF_ENVELOPE, BOTH, "client 8"),
    Seen("other", OF_ENVELOPE, OF_ENVELOPE, None),
    plain("other"),
    Seen("test_event", {}, OF_EVENT, None),
]


@pytest.mark.parametrize("through", [False, True], ids=["directly", "through a worker"])
async def test_consumers_see_headers(database_url: str, start_daemon: StartDaemon, through: bool) -> None:
    """In bundles, in a call for the event, and in a call for each batch; from memory and from the log."""
    graph: dict[str, list[str]] = {"store": []} | ({"capitals": ["store"]} if through else {})
    add_bus(database_url, {"test_event": graph, "other": graph})
    daemon = start_daemon(database_url)
    large = ["x" * 30_000] * 5
    worker, present, later = Capitals(), Noting(), Noting()

    async def deliver(consumer: Noting) -> None:
        async with serving(daemon, "store_1", consumer):
            if through:
                async with serving(daemon, "capitals_1", worker):
                    await eventually(lambda: consumer.commits == 5, "all are committed")
            else:
                await eventually(lambda: consumer.commits == 5, "all are committed")

    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        delivering = asyncio.create_task(deliver(present))
        await send_all(emitter, large)
        await delivering
        await send_all(emitter, large)
    assert present.seen == WANTED
    daemon.restart()
    await deliver(later)
    assert later.seen == WANTED
    if through:
        # It has one event at a time, and small envelopes ahead of the rest of one that goes alone.
        assert sorted(worker.seen, key=repr) == sorted(2 * WANTED, key=repr)


async def test_of_an_event_with_an_immediate_reply(sqlite_url: str, start_daemon: StartDaemon) -> None:
    class Replies(Noting):
        immediate_reply = ("question",)

        def on_event_end(self, event: Event) -> str:
            return str(event.headers["correlation_id"])

    add_bus(sqlite_url, {"question": {"store": []}}, immediate=["question"])
    daemon = start_daemon(sqlite_url)
    replies = Replies()
    async with serving(daemon, "store_1", replies), AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        async with emitter.envelope(headers=OF_ENVELOPE) as envelope:
            async with envelope.event("question", headers={"correlation_id": "17"}, partition_key="k") as event:
                await event.send("?")
            assert await event.reply() == "17"
        await eventually(lambda: replies.commits, "it is committed")
    assert replies.seen == [Seen("question", OF_ENVELOPE, OF_ENVELOPE | {"correlation_id": "17"}, "k")]


async def test_bad_headers_are_refused_before_anything_is_sent(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"store": []}})
    daemon = start_daemon(sqlite_url)
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        with pytest.raises(Refused, match="header traceparent is no traceparent of W3C Trace Context: give 00-"):
            await emitter.put("test_event", ["a"], headers={"traceparent": "1-2-3"})
        with pytest.raises(Refused, match="4096 are allowed"):
            emitter.envelope(headers={"mine": "x" * 4096})
        assert (await emitter.put("test_event", ["a"])).position == 1


async def test_recipients_that_announce_no_headers_get_the_calls_of_before(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    """Recipients of 0.2.0: an envelope with headers is brought by the same calls as one without."""
    add_bus(sqlite_url, {"test_event": {"names": ["store"], "store": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "names_1") as worker,
        OldConsumer(daemon.back, "store_1") as consumer,
        AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter,
    ):
        plain = await emitter.put("test_event", [b"a", b"b"])
        await consumer.wait_for([plain.envelope_id])
        async with emitter.envelope(headers=OF_ENVELOPE) as envelope:
            async with envelope.event("test_event", headers=OF_EVENT, partition_key="client 7") as event:
                for item in (b"a", b"b"):
                    await event.send(item)
        await consumer.wait_for([envelope.id])
        for recipient in (worker, consumer):
            without, with_headers = (
                [[verb, *args[2:]] for verb, *args in recipient.calls if args[:1] == [envelope_id]]
                for envelope_id in (plain.envelope_id, envelope.id)
            )
            assert with_headers == without
            assert ["start_event", "test_event"] in without


async def test_what_comes_again_has_its_headers(database_url: str, start_daemon: StartDaemon) -> None:
    """A replay, a retry, an operator's replay, and an item that was parked alone."""

    class Refusing(Noting):
        refuses = True

        def on_item(self, event: Event, item: Item) -> None:
            if self.refuses and item.value == "bad":
                raise Refusal("not yet", [item.index])
            super().on_item(event, item)

    add_bus(database_url, {"test_event": {"store": []}, "loose": {"store": []}})
    isolate_bad_items(database_url, "loose")
    daemon = start_daemon(database_url)
    consumer = Refusing()
    wanted = Seen("test_event", OF_ENVELOPE, BOTH, "client 7")

    async def send(emitter: AsyncEmitter, type_name: str, *items: str) -> tuple[str, str]:
        async with emitter.envelope(headers=OF_ENVELOPE) as envelope:
            async with envelope.event(type_name, headers=OF_EVENT, partition_key="client 7") as event:
                for item in items:
                    await event.send(item)
        return envelope.id, event.id

    async def seen(wanted: int) -> None:
        await eventually(lambda: consumer.commits == wanted, f"{wanted} envelopes are committed")

    async with serving(daemon, "store_1", consumer), AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        good, _ = await send(emitter, "test_event", "a")
        await seen(1)
        await emitter.replay(good)
        await seen(2)
        replay = ("replay", "--type", "test_event", "--role", "store_1", "--from", "1h", "--yes")
        await xbus(daemon, *replay)
        await seen(3)
        parked, event_id = await send(emitter, "test_event", "bad")
        await become(database_url, parked, store_1="parked")
        await send(emitter, "loose", "a", "bad")
        await seen(4)
        consumer.refuses = False
        await emitter.retry(event_id)
        await seen(5)
        await Operator(daemon).give("resume", "--all", "--yes")
        await seen(6)
    assert {each.type_name for each in consumer.seen} == {"test_event", "loose"}
    assert consumer.seen == [replace(wanted, type_name=each.type_name) for each in consumer.seen]


async def test_by_way_of_an_outbox(sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"test_event": {"store": []}, "other": {"store": []}})
    daemon = start_daemon(sqlite_url)
    consumer = Noting()
    large = ["x" * 30_000] * 5
    async with serving(daemon, "store_1", consumer):
        async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD, outbox=tmp_path / "outbox") as emitter:
            await send_all(emitter, large)
        await eventually(lambda: consumer.commits == 5, "all are committed")
    assert consumer.seen == WANTED


async def test_a_bulk_worker_gets_headers_with_the_hand_over(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url)
    consumer, halves = Noting(), Halves(sqlite_url)
    async with (
        serving(daemon, "store_1", consumer),
        serving(daemon, "halves_1", halves),
        AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter,
    ):
        await emitter.put("numbers", range(1000))
        async with emitter.envelope(headers=OF_ENVELOPE) as envelope:
            async with envelope.event("numbers", headers=OF_EVENT, partition_key="client 7") as event:
                for number in range(1000):
                    await event.send(number)
        await eventually(lambda: consumer.commits == 2, "both are committed")
    # The consumer behind the output sees them, too.
    assert consumer.seen == [plain("numbers"), Seen("numbers", OF_ENVELOPE, BOTH, "client 7")]
    assert [(dict(each.headers), each.partition_key) for each in halves.handed_over] == [({}, None), (BOTH, "client 7")]


async def test_commands_send_and_show_them(sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"test_event": {"store": []}})
    daemon = start_daemon(sqlite_url)
    file, secret = tmp_path / "items.jsonl", tmp_path / "secret"
    file.write_text("1\n2\n")
    secret.write_text(PASSWORD)
    emit = ("emit", str(file), "--type", "test_event", "--login", "emitter_1", "--password-file", str(secret))
    given = (
        "--header",
        f"traceparent={TRACEPARENT}",
        "--header",
        "shard:=7",
        "--header",
        "source_time=2030-01-31T12:00Z",
    )
    told = await xbus(daemon, *emit, *given)
    assert "position 1" in told
    detail = json.loads(await xbus(daemon, "envelope", "show", told.split("envelope ")[1].split(",")[0], "--json"))
    assert detail["headers"] == {"traceparent": TRACEPARENT, "shard": 7, "source_time": "2030-01-31T12:00:00+00:00"}
    assert [(event["headers"], event["partition_key"]) for event in detail["event_list"]] == [({}, None)]

    refused = await run_xbus(daemon, *emit, "--header", "traceparent=1-2-3")
    assert refused.returncode == 2
    assert "header traceparent is no traceparent of W3C Trace Context: give 00-" in " ".join(refused.stderr.split())

    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        async with emitter.envelope(headers=OF_ENVELOPE) as envelope:
            async with envelope.event("test_event", headers={"urgent": True}, partition_key="client\x1b7") as event:
                await event.send(1)
    shown = (await xbus(daemon, "envelope", "show", envelope.id)).splitlines()
    start = shown.index("HEADERS")
    rows = [line.split() for line in shown[start + 1 :]]
    assert rows[0] == ["EVENT", "NAME", "VALUE"]
    assert rows[1:5] == [
        ["all", "own", "envelope"],
        ["all", "shard", "7"],
        ["all", "traceparent", TRACEPARENT],
        ["1", "urgent", "true"],
    ]
    keys = shown.index("PARTITION KEYS")
    # What a terminal would obey is shown, not sent to it.
    assert "\x1b" not in shown[keys + 2]
    assert shown[keys + 2].split()[0] == "1"
