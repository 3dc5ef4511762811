"""Programs of a reader against the real broker: what the double stands for."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.reader import AsyncReader


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker with orders, and a reader of them with a range and two logins."""
    folder = tmp_path_factory.mktemp("sharing")
    url = new_sqlite(folder / "xbus.db")
    add_bus(url, {"orders": {"store": []}})
    add_reader(url, "billing", "orders", logins=2, ranges=2, lease=1.0)
    daemon = Daemon(folder / "daemon", url)
    daemon.start()
    yield daemon
    daemon.kill()


def reader_of(broker: Daemon, login: str = "billing_1", **options: Any) -> AsyncReader:
    return AsyncReader(broker.back, login, PASSWORD, **options)


async def send(broker: Daemon, *values: int) -> None:
    async with AsyncEmitter(broker.front, "emitter_1", PASSWORD) as emitter:
        for value in values:
            await emitter.put("orders", [value], partition_key=str(value))


async def read(reader: AsyncReader, number: int) -> list[int]:
    """Read so many items, and say that they are done."""
    found: list[int] = []
    while len(found) < number:
        batch = await reader.next_batch()
        found += [item.value for item in batch]
        batch.done()
    return found


async def test_programs_read_each_item_once_and_go_on_where_others_left(broker: Daemon) -> None:
    await send(broker, *range(20))
    async with asyncio.timeout(100):
        async with reader_of(broker, batch_items=3) as reader:
            first = await read(reader, 10)
        async with reader_of(broker, "billing_2", batch_items=3) as reader:
            second = await read(reader, 20 - len(first))
            assert sorted(first + second) == [*range(20)]
            await send(broker, 99)
            assert await read(reader, 1) == [99]


async def test_what_is_not_done_comes_again_as_the_same_batch(broker: Daemon) -> None:
    await send(broker, *range(6))
    async with asyncio.timeout(100):
        async with reader_of(broker) as reader:
            batch = await reader.next_batch()
            given = [item.value for item in batch]
        await send(broker, *range(6, 12))
        async with reader_of(broker) as reader:
            while not (repeated := await reader.next_batch()).is_repeated:
                repeated.done()
            assert (repeated.range, repeated.place, repeated.end) == (batch.range, batch.place, batch.end)
            assert [item.value for item in repeated] == given


async def test_a_program_that_was_silent_has_lost_its_ranges(broker: Daemon) -> None:
    await send(broker, *range(4))
    async with asyncio.timeout(100):
        async with reader_of(broker) as silent, reader_of(broker, "billing_2") as other:
            batch = await silent.next_batch()
            assert silent._renewing is not None
            silent._renewing.cancel()
            assert sorted(await read(other, 4)) == [0, 1, 2, 3]
            batch.done()
            with pytest.raises(Refused) as refused:
                await silent.next_batch()
            assert refused.value.code == "lease_lost"


def rearrange(url: str, turn: int, range_id: int) -> None:
    """Change the range of a batch that is out, as operators do: move it, split it, merge all."""
    decision = RepairDecision("ann", "to share the work", SystemClock().now())
    with writing(url) as connection:
        match turn:
            case 0:
                people.move(connection, "billing", "oldest", decision, range_id)
            case 1:
                people.split(connection, "billing", range_id, decision)
            case _:
                people.merge(connection, "billing", [each.id for each in read_ranges(connection)], decision)


async def test_the_documented_program_reads_on_when_its_ranges_are_moved_split_and_merged(broker: Daemon) -> None:
    await send(broker, *range(20))
    found: set[int] = set()
    dropped = 0
    async with asyncio.timeout(100), reader_of(broker, batch_items=3) as reader:
        async for batch in reader:
            if dropped < 3:
                await asyncio.to_thread(rearrange, broker.url, dropped, batch.range)
                dropped += 1
            else:
                found |= {item.value for item in batch}
            batch.done()
            if found == {*range(20)}:
                break
