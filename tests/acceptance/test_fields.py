"""What becomes of each field of an envelope on each way that it can take: it is kept, derived, or dropped on purpose.

A field that is new in ``EnvelopeHead`` or ``EventTags`` has to get a value here. Then each way that loses it fails.
"""

import asyncio
import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow.parquet as pq
import pytest

from tests.conftest import StartDaemon
from tests.support.archives import archive
from tests.support.bus import PASSWORD, password_hash
from tests.support.daemon import Daemon
from tests.support.gateway import serving_http
from tests.support.operating import xbus
from tests.support.serving import serving
from tests.support.waiting import eventually
from xbus.admin import bus_file
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.configuration import apply, make_plan, read_stored, set_password
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.envelope import EnvelopeHead
from xbus.headers import EventTags
from xbus.reader import AsyncReader
from xbus.recipient import Consumer, Envelope, Event, Item, Refusal, Worker
from xbus.rpc.codec import unpack

Fields: TypeAlias = dict[str, Any]
"""Values by the names of fields: those of the envelope, then those of its event."""

GIVEN: Fields = {
    "envelope.ordering_key": "Ada",
    "envelope.key": "order 17",
    "envelope.headers": {"shop": "Paris", "correlation_id": "17"},
    "event.headers": {"urgent": True},
    "event.partition_key": "client 7",
    "event.type_name": "orders",
    "event.items": [{"n": 1}, {"n": 2}],
}


class Dropped(NamedTuple):
    """A field that does not arrive, and why not."""

    reason: str


class Derived(NamedTuple):
    """A field that arrives with another value, and why so."""

    value: object
    reason: str


ONE_SET = Dropped("a request has one set of headers, which become those of its envelope")

TABLE: Mapping[str, Mapping[str, Dropped | Derived]] = {
    "at the head of the log": {},
    "read back from the database": {},
    "behind a worker": {},
    "put in one call": {"event.headers": Dropped("put has one set of headers, which become those of its envelope")},
    "by an outbox": {},
    "by HTTP": {
        "event.headers": ONE_SET,
        "envelope.headers": Derived(
            {"shop": "Paris", "correlation_id": "17", "urgent": "true"}, "headers of HTTP are texts"
        ),
    },
    "replayed": {"envelope.key": Dropped("a key is that of one envelope, and a replay is another one")},
    "replayed to a role": {"envelope.key": Dropped("a key is that of one envelope, and a replay is another one")},
    "resumed item by item": {"envelope.key": Dropped("a key is that of one envelope, and this is another one")},
    "chained": {
        "envelope.key": Derived("the id", "of each envelope one is made, whatever dies"),
        "event.type_name": Derived("copies", "the node names the type"),
    },
    "by a reader": {},
    "by the tail of HTTP": {},
    "archived": {
        "event.headers": Derived({"urgent": "true"}, "a column has values of one type, texts"),
        "envelope.key": Dropped("it stays in the journal with the rows of the envelope"),
        "envelope.ordering_key": Dropped("it stays in the journal with the rows of the envelope"),
    },
    "by xbus read": dict.fromkeys(
        ("envelope.ordering_key", "envelope.key", "envelope.headers", "event.headers", "event.partition_key"),
        Dropped("xbus envelope show shows it"),
    ),
    "shown": {"event.items": Dropped("xbus envelope items shows them")},
}
"""By the way: the fields that are not kept on it."""

BUS = """
[[event_type]]
name = "orders"
bad_items = "isolate"
[[event_type.node]]
name = "direct"
service = "direct"
[[event_type.node]]
name = "passes"
service = "passes"
to = ["behind", "copy"]
[[event_type.node]]
name = "behind"
service = "behind"
[[event_type.node]]
name = "copy"
emits = "copies"

[[event_type]]
name = "copies"
[[event_type.node]]
name = "chained"
service = "chained"

[[service]]
name = "direct"
kind = "consumer"
[[service]]
name = "passes"
kind = "worker"
[[service]]
name = "behind"
kind = "consumer"
[[service]]
name = "chained"
kind = "consumer"
[[reader]]
name = "audit"
event_types = ["orders"]

[[role]]
login = "direct_1"
service = "direct"
[[role]]
login = "passes_1"
service = "passes"
[[role]]
login = "behind_1"
service = "behind"
[[role]]
login = "chained_1"
service = "chained"
[[role]]
login = "audit_1"
service = "audit"

[[emitter_profile]]
name = "shop"
event_types = ["orders"]
[[emitter]]
login = "shop_1"
profile = "shop"
"""


class Noting(Consumer):
    """Notes each envelope with one event."""

    def __init__(self) -> None:
        self.refuses = False
        self.seen: list[tuple[Envelope, Event]] = []
        self._items: list[Any] = []
        self.items: list[list[Any]] = []

    def on_event_start(self, event: Event) -> None:
        self._items = []
        self._event = event

    def on_item(self, event: Event, item: Item) -> None:
        self._items.append(item.value)
        if self.refuses and len(self._items) == len(GIVEN["event.items"]):
            raise Refusal("not yet", [*range(len(self._items))])

    def commit(self, envelope: Envelope) -> None:
        self.seen.append((envelope, self._event))
        self.items.append(self._items)

    @property
    def last(self) -> Fields:
        """The fields of the envelope that came last."""
        envelope, event = self.seen[-1]
        return fields_of(envelope, event, self.items[-1])


def fields_of(envelope: Any, event: Any, items: list[Any]) -> Fields:
    """The fields as recipients have them, where an event has the headers of its envelope, too."""
    return {
        "envelope.ordering_key": envelope.ordering_key,
        "envelope.key": envelope.key,
        "envelope.headers": dict(envelope.headers),
        "event.headers": {name: value for name, value in event.headers.items() if name not in envelope.headers},
        "event.partition_key": event.partition_key,
        "event.type_name": event.type_name,
        "event.items": items,
    }


@dataclass(frozen=True)
class Bus:
    """A broker with all that serves it."""

    daemon: Daemon
    sends: str
    reads: str


@pytest.fixture
def bus(sqlite_url: str, start_daemon: StartDaemon) -> Bus:
    at = SystemClock().now()
    with writing(sqlite_url) as connection:
        read = bus_file.read(BUS.encode())
        plan = make_plan(read_stored(connection), read.bus)
        assert [*read.problems, *plan.problems] == []
        apply(connection, plan, at)
        set_password(connection, "emitter", "shop_1", password_hash(), at)
        for login in read.bus.roles:
            set_password(connection, "role", login, password_hash(), at)
        sends = add_api_token(connection, "sends", emitter="shop_1", at=at)
        reads = add_api_token(connection, "reads", role="audit_1", at=at)
    daemon = start_daemon(sqlite_url, {"http": {"listen": "127.0.0.1:0"}, "journal": {"keep_settled_days": 0}})
    return Bus(daemon, sends, reads)


async def send(emitter: AsyncEmitter, **other: Any) -> str:
    """Send an envelope with a value in each field; its id."""
    options = {name: GIVEN[f"envelope.{name}"] for name in EnvelopeHead._fields}
    tags = {name: GIVEN[f"event.{name}"] for name in EventTags._fields}
    async with emitter.envelope(**options | other) as envelope:
        async with envelope.event(GIVEN["event.type_name"], **tags) as event:
            await event.send_all(GIVEN["event.items"])
    return envelope.id


def test_each_field_has_a_value_here_and_each_row_is_of_a_field() -> None:
    names = {f"envelope.{name}" for name in EnvelopeHead._fields} | {f"event.{name}" for name in EventTags._fields}
    assert set(GIVEN) == names | {"event.type_name", "event.items"}
    assert None not in GIVEN.values()
    assert {name for row in TABLE.values() for name in row} <= set(GIVEN)


async def test_each_field_is_kept_derived_or_dropped_on_purpose(bus: Bus, tmp_path: Path) -> None:
    arrived: dict[str, Fields] = {}
    daemon = bus.daemon
    async with AsyncEmitter(daemon.front, "shop_1", PASSWORD) as emitter:
        first = await send(emitter)
        daemon.restart()
    direct, behind, chained = Noting(), Noting(), Noting()

    async def came(number: int) -> Fields:
        every = (direct, behind, chained)
        await eventually(lambda: all(len(each.seen) == number for each in every), f"{number} envelopes came")
        return direct.last

    async with (
        serving(daemon, "direct_1", direct),
        serving(daemon, "passes_1", Worker()),
        serving(daemon, "behind_1", behind),
        serving(daemon, "chained_1", chained),
        AsyncEmitter(daemon.front, "shop_1", PASSWORD) as emitter,
    ):
        arrived["read back from the database"] = await came(1)
        arrived["behind a worker"] = behind.last
        arrived["chained"] = with_id(chained.last, first)
        await emitter.replay(first)
        arrived["replayed"] = await came(2)
        await send(emitter, key="order 18")
        arrived["at the head of the log"] = again(await came(3), "order 18")
        options: Any = {name: GIVEN[f"envelope.{name}"] for name in EnvelopeHead._fields}
        items, partition_key = GIVEN["event.items"], GIVEN["event.partition_key"]
        await emitter.put("orders", items, **options | {"key": "order 19"}, partition_key=partition_key)
        arrived["put in one call"] = again(await came(4), "order 19")
        outbox: Any = {"outbox": tmp_path / "box", "retry_seconds": 0.2, "outbox_seconds": 0.01}
        async with AsyncEmitter("tcp://127.0.0.1:9", "shop_1", PASSWORD, **outbox) as queueing:
            for number in (20, 21):
                await send(queueing, key=f"order {number}")
        # Both wait by now, so they go in one message.
        async with AsyncEmitter(daemon.front, "shop_1", PASSWORD, outbox=tmp_path / "box"):
            await came(6)
        arrived["by an outbox"] = again(direct.last, "order 21")
        with serving_http(daemon.config) as address:
            await asyncio.to_thread(post, address, bus.sends)
            arrived["by HTTP"] = again(await came(7), "order 22")
            arrived["by the tail of HTTP"] = await asyncio.to_thread(tail, address, bus.reads)
        direct.refuses = True
        parked = await send(emitter, key="order 23")
        await eventually(lambda: (len(direct.seen), len(behind.seen)) == (8, 8), "an envelope without items came")
        direct.refuses = False
        await xbus(daemon, "parked", "resume", parked, "--role", "direct_1", "--reason", "mended", "--yes")
        await eventually(lambda: len(direct.seen) == 9, "its items came")
        arrived["resumed item by item"] = direct.last
        part = ("--type", "orders", "--role", "direct_1", "--from", "1", "--to", "1")
        await xbus(daemon, "replay", *part, "--reason", "lost a disk", "--yes")
        await eventually(lambda: len(direct.seen) == 10, "the first one came again")
        arrived["replayed to a role"] = direct.last
    async with AsyncReader(daemon.back, "audit_1", PASSWORD) as reader:
        read = 0
        while read < 7:
            batch = await reader.next_batch()
            if not read:
                (event, *_) = batch.events
                arrived["by a reader"] = fields_of(FromReader(event), event, [item.value for item in event])
            read += len(batch.events)
            batch.done()
    lines = (await xbus(daemon, "read", "orders", "--limit", "2", "--json")).splitlines()
    arrived["by xbus read"] = as_read([json.loads(line) for line in lines])
    arrived["shown"] = as_shown(json.loads(await xbus(daemon, "envelope", "show", first, "--json")))
    files = tmp_path / "archive"
    # What is delivered and read is noted a little later.
    await eventually(lambda: archive(daemon.url, files) and archived(files, first), "it is archived")
    arrived["archived"] = as_archived(archived(files, first))

    assert {way: judged(arrived[way], TABLE[way]) for way in TABLE} == dict.fromkeys(TABLE, GIVEN)


def judged(arrived: Fields, row: Mapping[str, Dropped | Derived]) -> Fields:
    """The fields that came on a way, where those that came as its row says have the value that was given."""
    return {name: _judged(name, arrived.get(name), row.get(name)) for name in GIVEN}


def _judged(name: str, found: object, wanted: Dropped | Derived | None) -> object:
    if wanted is None:
        return found
    is_as_wanted = not found if isinstance(wanted, Dropped) else found == wanted.value
    return GIVEN[name] if is_as_wanted else ("not as the table says", found)


def again(arrived: Fields, key: str) -> Fields:
    """The fields of an envelope that was sent under another key, as the same key is of the first one for good."""
    assert arrived["envelope.key"] == key
    return {**arrived, "envelope.key": GIVEN["envelope.key"]}


def with_id(arrived: Fields, envelope_id: str) -> Fields:
    """The fields of an envelope that was made of another one."""
    return {**arrived, "envelope.key": "the id" if arrived["envelope.key"] == envelope_id else arrived["envelope.key"]}


@dataclass(frozen=True)
class FromReader:
    """The envelope of an event as a reader has it."""

    event: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.event, {"headers": "envelope_headers"}.get(name, name))


def post(address: str, token: str) -> None:
    """Post an envelope with all that a request can say."""
    said = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Idempotency-Key": "order 22",
        "X-Xbus-Ordering-Key": GIVEN["envelope.ordering_key"],
        "X-Xbus-Partition-Key": GIVEN["event.partition_key"],
        "X-Xbus-Urgent": "true",
        "X-Xbus-Shop": "Paris",
        "X-Xbus-Correlation-Id": "17",
    }
    url = f"{address}/v1/types/orders/envelopes"
    body = json.dumps(GIVEN["event.items"]).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, said), timeout=60) as answer:
        assert answer.status == 201


def tail(address: str, token: str) -> Fields:
    """The first envelope of the tail from the oldest on."""
    url = f"{address}/v1/types/orders/tail?from=oldest"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = (json.loads(line[5:]) for line in answer if line.startswith(b"data:"))
        first, second = next(lines), next(lines)
    return {
        "envelope.ordering_key": first["ordering_key"],
        "envelope.key": first["key"],
        **parted(first["headers"]),
        "event.partition_key": first["partition_key"],
        "event.type_name": first["type"],
        "event.items": [first["value"], second["value"]],
    }


def parted(headers: Mapping[str, Any]) -> Fields:
    """Part the headers that an event has with those of its envelope."""
    of_envelope = {name: headers[name] for name in GIVEN["envelope.headers"] if name in headers}
    own = {name: value for name, value in headers.items() if name not in of_envelope}
    return {"envelope.headers": of_envelope, "event.headers": own}


def as_read(lines: list[Any]) -> Fields:
    """The fields that ``xbus read`` writes with each item."""
    return {"event.type_name": lines[0]["type"], "event.items": [line["value"] for line in lines]}


def as_shown(detail: Any) -> Fields:
    """The fields that ``xbus envelope show`` shows."""
    (event,) = detail["event_list"]
    return {
        "envelope.ordering_key": detail["ordering_key"],
        "envelope.key": detail["key"],
        "envelope.headers": detail["headers"],
        "event.headers": event["headers"],
        "event.partition_key": event["partition_key"],
        "event.type_name": event["type"],
    }


def archived(folder: Path, envelope_id: str) -> list[Any]:
    """The rows of an envelope in the files of an archive; none before they are made."""
    rows = pq.read_table(folder).to_pylist() if folder.exists() else []
    return sorted((row for row in rows if row["envelope_id"] == envelope_id), key=lambda row: row["index"])


def as_archived(rows: list[Any]) -> Fields:
    """The fields that the rows of an archive have."""
    return {
        **parted(dict(rows[0]["headers"])),
        "event.partition_key": rows[0]["partition_key"],
        "event.type_name": rows[0]["event_type"],
        "event.items": [unpack(row["data"]) for row in rows],
    }
