"""Reading goes on where it was when the database cuts its connections."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from spark_worker.source.journal import TypeLog
from spark_worker.source.options import batch_options
from spark_worker.source.reading import Wanted, read_range
from tests.support.daemon import write_config
from tests.support.journal import Scribe, add_small_bus, looking
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import LogRange
from xbus.errors import JournalUnavailable
from xbus.rpc.codec import unpack_items

CUT_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

ITEMS = [b"%d" % number for number in range(900)]


async def fill(url: str) -> None:
    """Three envelopes, and a large one of many segments."""
    async with Journal.open(url, "broker") as journal:
        scribe = await Scribe.of(journal)
        for first in (0, 100, 200):
            await scribe.put(ITEMS[first : first + 100])
        envelope_id, _ = scribe.start_envelope()
        event_id, _ = scribe.start_event(envelope_id)
        for first in range(0, 600, 20):
            await scribe.append(envelope_id, event_id, first, ITEMS[300 + first : 320 + first])
        await scribe.end_event(envelope_id, event_id, 600)
        await scribe.seal(envelope_id, 1, 600)


@pytest.fixture
def log(postgres_url: str, tmp_path: Path) -> Callable[[float], TypeLog]:
    with looking(postgres_url) as connection:
        add_small_bus(connection)
    asyncio.run(fill(postgres_url))

    def make(retry_seconds: float) -> TypeLog:
        config = write_config(tmp_path / "config.ini", postgres_url)
        given = {"config": str(config), "eventType": "notes", "retrySeconds": str(retry_seconds), "partitions": "1"}
        return TypeLog(batch_options(given, ("index", "data")))

    return make


def read(wanted: Wanted, meanwhile: Callable[[int], None]) -> list[bytes]:
    found: list[bytes] = []
    assert isinstance(wanted.part, LogRange)
    for number, segment in enumerate(read_range(wanted, wanted.part, page_bytes=300)):
        found += unpack_items(segment.data, segment.items)
        meanwhile(number)
    return found


def test_each_item_comes_once_whenever_connections_are_cut(postgres_url: str, log: Callable[[float], TypeLog]) -> None:
    [wanted] = log(30.0).plan(0, 4, 1)

    def cut(number: int) -> None:
        if number % 5 == 1:
            with looking(postgres_url) as connection:
                connection.execute(sa.text(CUT_ALL))

    assert read(wanted, cut) == ITEMS


def test_without_patience_it_is_an_error(postgres_url: str, log: Callable[[float], TypeLog]) -> None:
    [wanted] = log(0.0).plan(0, 4, 1)

    def cut(number: int) -> None:
        with looking(postgres_url) as connection:
            connection.execute(sa.text(CUT_ALL))

    with pytest.raises(JournalUnavailable):
        read(wanted, cut)
