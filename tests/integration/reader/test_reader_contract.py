"""The contract of reading: a real broker, the bus for tests and the double of the back give programs the same.

Each log has events of one item, which belong to two keys in turn.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.integration.reader.reader_double import LOGIN, ReaderDouble
from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.reader import AsyncReader, EventBatch, ReaderBatch
from xbus.rpc.codec import pack
from xbus.testing import Bus
from xbus.testing.pull import InMemoryReader

SECONDS = 0.1
"""Seconds in which nothing comes where nothing is left."""


class Program(Protocol):
    """A program of the reader."""

    async def next_batch(self) -> ReaderBatch: ...

    async def has_more(self) -> bool: ...

    async def log(self, start: str, key: str | None = None) -> list[EventBatch]: ...


class ReadingBus(Protocol):
    """A bus with a reader of one range."""

    async def send(self, values: Sequence[int]) -> None: ...

    def program(self, **options: Any) -> AbstractAsyncContextManager[Program]: ...


class ProgramOfSockets:
    """A program that calls over a socket."""

    def __init__(self, reader: AsyncReader) -> None:
        self._reader = reader

    async def next_batch(self) -> ReaderBatch:
        return await self._reader.next_batch()

    async def has_more(self) -> bool:
        return await self._reader.poll(SECONDS) is not None

    async def log(self, start: str, key: str | None = None) -> list[EventBatch]:
        view = self._reader.at(start) if key is None else self._reader.for_key(key, start)
        return [batch async for batch in view]


class RealBus:
    """A broker that runs."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._sent = 0

    async def send(self, values: Sequence[int]) -> None:
        async with AsyncEmitter(self._daemon.front, "emitter_1", PASSWORD) as emitter:
            for value in values:
                await emitter.put("orders", [value], partition_key=f"client {self._sent % 2}")
                self._sent += 1

    @asynccontextmanager
    async def program(self, **options: Any) -> AsyncIterator[Program]:
        async with AsyncReader(self._daemon.back, LOGIN, PASSWORD, **options) as reader:
            yield ProgramOfSockets(reader)


class DoubleBus:
    """The double of the back."""

    def __init__(self, double: ReaderDouble) -> None:
        self._double = double

    async def send(self, values: Sequence[int]) -> None:
        self._double.items = [*self._double.items, *map(pack, values)]

    @asynccontextmanager
    async def program(self, **options: Any) -> AsyncIterator[Program]:
        async with AsyncReader(self._double.address, LOGIN, "password", **options) as reader:
            yield ProgramOfSockets(reader)


class ProgramInMemory:
    """A program of the bus for tests."""

    def __init__(self, reader: InMemoryReader) -> None:
        self._reader = reader

    async def next_batch(self) -> ReaderBatch:
        return self._reader.next_batch()

    async def has_more(self) -> bool:
        return next(iter(self._reader), None) is not None

    async def log(self, start: str, key: str | None = None) -> list[EventBatch]:
        return [*(self._reader.at(start) if key is None else self._reader.for_key(key, start))]


class BusInMemory:
    """The bus for tests."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        bus.type("orders").read_by(LOGIN)
        self._sent = 0

    async def send(self, values: Sequence[int]) -> None:
        for value in values:
            self._bus.emit("orders", [value], partition_key=f"client {self._sent % 2}")
            self._sent += 1

    @asynccontextmanager
    async def program(self, **options: Any) -> AsyncIterator[Program]:
        with self._bus.reader(LOGIN, **options) as reader:
            yield ProgramInMemory(reader)


@pytest.fixture(params=["broker", "bus for tests", "double"])
def readable(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each of the three in turn."""
    match request.param:
        case "double":
            yield DoubleBus(request.getfixturevalue("back"))
        case "bus for tests":
            with Bus() as bus:
                yield BusInMemory(bus)
        case _:
            url = new_sqlite(tmp_path / "xbus.db")
            add_bus(url, {"orders": {"store": []}})
            add_reader(url, LOGIN.removesuffix("_1"), "orders", ranges=1, start="oldest")
            daemon = Daemon(tmp_path / "daemon", url)
            daemon.start()
            yield RealBus(daemon)
            daemon.kill()


def told(batch: EventBatch) -> tuple[str, str, list[int]]:
    return batch.place, batch.end, [item.value for item in batch]


async def test_batches_come_in_order_and_end(readable: ReadingBus) -> None:
    await readable.send([10, 11, 12])
    async with readable.program(batch_items=2) as program:
        first = await program.next_batch()
        assert (first.is_repeated, told(first)) == (False, ("1", "3", [10, 11]))
        first.done()
        second = await program.next_batch()
        assert told(second) == ("3", "4", [12])
        second.done()
        assert not await program.has_more()
        await readable.send([13])
        assert told(await program.next_batch()) == ("4", "5", [13])


async def test_what_is_done_never_comes_again(readable: ReadingBus) -> None:
    await readable.send([10, 11])
    async with readable.program(batch_items=1) as program:
        (await program.next_batch()).done()
    async with readable.program() as program:
        assert told(await program.next_batch()) == ("2", "3", [11])


async def test_what_is_not_done_comes_again_as_the_same_batch(readable: ReadingBus) -> None:
    await readable.send([10, 11, 12])
    async with readable.program(batch_items=2) as program:
        first = told(await program.next_batch())
    await readable.send([13])
    async with readable.program(batch_items=2) as program:
        again = await program.next_batch()
        assert (again.is_repeated, told(again)) == (True, first)
        again.done()
        assert told(await program.next_batch()) == ("3", "5", [12, 13])


async def test_a_batch_that_is_not_done_is_asked_for(readable: ReadingBus) -> None:
    await readable.send([10])
    async with readable.program() as program:
        await program.next_batch()
        with pytest.raises(Refused) as refusal:
            await program.next_batch()
        assert refusal.value.code == "batch_not_done"


async def test_looking_back_leaves_no_trace(readable: ReadingBus) -> None:
    await readable.send([10, 11, 12, 13])
    async with readable.program() as program:
        assert [told(batch) for batch in await program.log("oldest")] == [("1", "5", [10, 11, 12, 13])]
        assert [told(batch) for batch in await program.log("3")] == [("3", "5", [12, 13])]
        (found,) = await program.log("oldest", "client 1")
        assert [(item.value, item.event.partition_key) for item in found] == [(11, "client 1"), (13, "client 1")]
        assert told(await program.next_batch()) == ("1", "5", [10, 11, 12, 13])


async def test_items_tell_where_they_stand(readable: ReadingBus) -> None:
    await readable.send([10, 11])
    async with readable.program() as program:
        _, item = await program.next_batch()
    event = item.event
    assert (item.index, item.event_type, event.position, event.index, event.first_index) == (0, "orders", 2, 0, 0)
    assert (event.key, event.partition_key, event.size) == (None, "client 1", 1)
