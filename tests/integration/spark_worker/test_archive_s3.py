"""An archive in S3, of a server of the package moto: written, read and restored over HTTP, without Spark."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from spark_worker.archive import storage
from spark_worker.archive.archiver import Archiver, FilePlanner
from spark_worker.archive.copying import CopyFailed, copy_file
from spark_worker.archive.reading import read_items
from spark_worker.archive.restoring import restore
from spark_worker.archive.run import begun
from tests.support.journal import Scribe, add_small_bus, looking, settle_all
from tests.support.s3 import KEYS, address, s3_bucket
from xbus import model
from xbus.broker.journal.archive.plans import FilePlan
from xbus.broker.journal.archive.reading import archived_files
from xbus.broker.journal.archive.records import FileWritten
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import read_type_id
from xbus.broker.journal.retention.rules import sealed_before
from xbus.broker.journal.writes import SealReceipt
from xbus.clock import SystemClock
from xbus.errors import JournalError
from xbus.ids import Ids

ITEMS = [b"%d" % number for number in range(1000)]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder in a bucket of its own, as ``--to`` names it."""
    with s3_bucket(monkeypatch) as (bucket, port):
        yield address(bucket, "archive", port)


def fill(url: str) -> list[SealReceipt]:
    """Settled envelopes."""

    async def put() -> list[SealReceipt]:
        async with Journal.open(url, "broker") as journal:
            scribe = await Scribe.of(journal)
            receipts = [await scribe.put(ITEMS, type_name="flights") for _ in range(2)]
            await settle_all(journal, len(receipts))
        return receipts

    with looking(url) as connection:
        add_small_bus(connection)
    return asyncio.run(put())


def stored_items(url: str) -> int:
    """How many items the journal itself holds."""
    with reading(url) as connection:
        return int(
            connection.execute(sa.select(sa.func.coalesce(sa.func.sum(model.log_segment.c["items"]), 0))).scalar_one()
        )


def test_items_go_there_and_come_back(sqlite_url: str, place: str) -> None:
    receipts = fill(sqlite_url)
    clock, ids = SystemClock(), Ids()

    def copy(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> list[FileWritten | CopyFailed]:
        return [copy_file(sqlite_url, plan, wrote) for plan in plans]

    with begun(sqlite_url, clock, ids) as run:
        report = Archiver(run, FilePlanner(place, ids), copy, clock).archive(sealed_before(datetime.now(UTC)))
    assert (report.envelopes, report.items, stored_items(sqlite_url)) == (2, 2000, 0)

    with reading(sqlite_url) as connection:
        type_id = read_type_id(connection, "flights")
        assert type_id is not None
        [file] = archived_files(connection, type_id, 0, 10)
    assert file.location.startswith(f"{place.partition('?')[0]}/event_type=flights/")
    assert not any(secret in file.location for secret in KEYS.values() if secret != "true")
    rows = [row for batch in read_items(file, ("position", "data")) for row in batch.to_pylist()]
    assert [(row["position"], row["data"]) for row in rows] == [
        (position, item) for position in (1, 2) for item in ITEMS
    ]

    with begun(sqlite_url, clock, ids) as run:
        assert restore(sqlite_url, run, receipts[0].envelope_id, clock) == [receipts[0].envelope_id]
    assert stored_items(sqlite_url) == 1000


def test_an_object_is_there_as_a_whole_or_not_at_all(place: str) -> None:
    location = storage.below(place, "event_type=flights/day=2026-01-31/part.parquet")

    def written(sink: Any) -> None:
        sink.write(b"whole")

    assert storage.publish(location, written) == 5

    with storage.read(location) as file:
        assert file.read() == b"whole"
    storage.remove(location)
    storage.remove(location)
    with pytest.raises(JournalError) as missing:
        storage.read(location)
    assert missing.value.code == "archive_missing"

    def broken_off(sink: Any) -> None:
        sink.write(b"ha")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        storage.publish(location, broken_off)
    with pytest.raises(JournalError) as missing:
        storage.read(location)
    assert missing.value.code == "archive_missing"
