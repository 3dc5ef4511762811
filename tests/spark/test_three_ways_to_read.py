"""The same range of the log by a reader, a role and Spark: each gets the same items, be they in objects or archived."""

import asyncio
from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_reader
from tests.support.serving import serving
from tests.support.spark_log import SparkLog
from tests.support.waiting import eventually
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.status import list_readers
from xbus.clock import SystemClock
from xbus.config.values import LEAST_LARGE
from xbus.reader import Reader
from xbus.recipient import Consumer, Envelope, Event, Item

Found = dict[tuple[int, str, int], bytes]
"""Each item by the position of its envelope, its event and its index."""

FIRST, LAST = 2, 9
"""The range that all read: the positions of its first and last envelope."""

LARGE = 6
"""The number of the envelope whose last event is large enough for an object store."""


class Keeps(Consumer):
    """A consumer that keeps what it has committed of orders."""

    def __init__(self) -> None:
        self.items: Found = {}
        self.committed: set[str] = set()
        self._open: defaultdict[str, Found] = defaultdict(dict)

    def on_item(self, event: Event, item: Item) -> None:
        assert event.envelope.position is not None
        if event.type_name == "orders":
            self._open[event.envelope.id][event.envelope.position, event.id, item.index] = item.data

    def commit(self, envelope: Envelope) -> None:
        self.items.update(self._open.pop(envelope.id, {}))
        self.committed.add(envelope.id)


def by_role(log: SparkLog, envelopes: int) -> Found:
    store = Keeps()

    async def serve() -> None:
        async with serving(log.daemon, "store_1", store):
            await eventually(lambda: len(store.committed) == envelopes, "all is delivered")

    asyncio.run(serve())
    return {place: data for place, data in store.items.items() if FIRST <= place[0] <= LAST}


def by_reader(log: SparkLog, items: int) -> Found:
    """Read by batches with leases, in ranges, until so many items have come."""
    found: Found = {}
    with Reader(log.daemon.back, "billing_1", PASSWORD, batch_items=7) as reader:
        for batch in reader:
            found |= {(item.event.position, item.event.id, item.index): item.data for item in batch}
            batch.done()
            if len(found) == items:
                break
    return {place: data for place, data in found.items() if FIRST <= place[0] <= LAST}


def by_view(log: SparkLog) -> Found:
    """Read without leases, from the first position on."""
    with Reader(log.daemon.back, "billing_1", PASSWORD, batch_items=7) as reader:
        items = [item for batch in reader.at(str(FIRST)) for item in batch]
    return {(it.event.position, it.event.id, it.index): it.data for it in items if it.event.position <= LAST}


def by_spark(log: SparkLog) -> Found:
    rows = log.read(**{"from": FIRST}, to=LAST).collect()
    return {(row.position, row.event_id, row["index"]): bytes(row.data) for row in rows}


def test_a_reader_a_role_and_spark_get_the_same(
    database_url: str, start_daemon: StartDaemon, spark: SparkSession, tmp_path: Path
) -> None:
    SparkLog.prepare(database_url)
    add_reader(database_url, "billing", "orders", ranges=3, keeps=False)
    objects = tmp_path / "objects"
    options = {"journal": {"objects": objects, "large_bytes": LEAST_LARGE}}
    log = SparkLog(start_daemon(database_url, options), spark)
    receipts, empty = [], 0
    for number in range(10):
        type_name = "notes" if number % 5 == 3 else "orders"
        sizes = (2 + number, 0, 5)[: 1 + number % 3]
        events = [[b"%d/%d/%d" % (number, event, index) for index in range(size)] for event, size in enumerate(sizes)]
        empty += events.count([]) if type_name == "orders" else 0
        if number == LARGE:
            events.append([b"large" * LEAST_LARGE])
        receipts.append(log.emit(*events, type_name=type_name))
    assert len(list(objects.glob("??/*"))) == 1, "the data of the large event lies outside"
    total = len(log.read().collect())

    expected = by_spark(log)
    assert len({position for position, _, _ in expected}) > 3
    assert by_view(log) == expected
    assert by_reader(log, total) == expected
    assert by_role(log, len(receipts)) == expected
    with reading(database_url) as connection:
        # The reader stops at the last item. Empty events may lie behind that, where they end a range.
        assert list_readers(connection, "billing")[0].lag <= empty

    rest = len(log.read(**{"from": FIRST}).collect())
    log.archive(tmp_path / "archive", until=len(receipts))
    assert by_spark(log) == expected
    with writing(database_url) as connection:
        people.move(connection, "billing", Place(FIRST), RepairDecision("ada", "again", SystemClock().now()))
    log.daemon.start()
    assert by_reader(log, rest) == expected, "the broker has it put back"
    assert by_spark(log) == expected
    assert by_view(log) == expected
