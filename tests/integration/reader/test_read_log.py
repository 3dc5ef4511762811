"""The log as programs read it from any place on, in the real broker."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.reader import AsyncReader, EventBatch


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker with orders, refunds and a reader of both, and notes that the reader does not read."""
    folder = tmp_path_factory.mktemp("reading")
    url = new_sqlite(folder / "xbus.db")
    add_bus(url, {name: {"store": []} for name in ("orders", "refunds", "notes")})
    add_reader(url, "billing", "orders", "refunds")
    daemon = Daemon(folder / "daemon", url)
    daemon.start()
    yield daemon
    daemon.kill()


def emitter_of(broker: Daemon) -> AsyncEmitter:
    return AsyncEmitter(broker.front, "emitter_1", PASSWORD)


def reader_of(broker: Daemon, login: str = "billing_1", **options: Any) -> AsyncReader:
    return AsyncReader(broker.back, login, PASSWORD, **options)


def values(*batches: EventBatch) -> list[object]:
    return [item.value for batch in batches for item in batch]


async def test_the_log_is_read_from_any_place_on(broker: Daemon) -> None:
    async with emitter_of(broker) as emitter, reader_of(broker, batch_items=3) as reader:
        first = await emitter.put("orders", [1, 2], partition_key="client 7", headers={"source": "shop"})
        await emitter.put("notes", ["nobody's"])
        await emitter.put("refunds", [3], ordering_key="client 7")
        last = await emitter.put("orders", [4, 5, 6], partition_key="client 8")
        start = str(first.position)

        batches = [batch async for batch in reader.at(start)]
        assert values(*batches) == [1, 2, 3, 4, 5, 6]
        assert [len(batch) for batch in batches] == [3, 3]
        assert all(before.end == after.place for before, after in pairwise(batches))
        (event, _) = batches[0].events
        assert (event.type_name, event.emitter, event.envelope_headers) == ("orders", "emitter_1", {"source": "shop"})

        assert values(*[batch async for batch in reader.at(f"{last.position}:0:1")]) == [5, 6]
        assert values(*[batch async for batch in reader.at(start, types=["refunds"])]) == [3]
        assert values(*[batch async for batch in reader.for_key("client 7", start)]) == [1, 2, 3]
        at = batches[0].events[0].sealed_at
        assert values(*[batch async for batch in reader.at(at - timedelta(seconds=1))])[-6:] == [1, 2, 3, 4, 5, 6]
        assert values(*[batch async for batch in reader.at("head")]) == []


async def test_who_waits_is_woken_by_what_it_wants(broker: Daemon) -> None:
    async with emitter_of(broker) as emitter, reader_of(broker) as reader:
        view = reader.at("head", types=["refunds"], follow=True)
        waiting = asyncio.create_task(view.next_batch())
        async with asyncio.timeout(60):
            await emitter.put("notes", ["a"])
            await emitter.put("orders", ["b"])
            while not waiting.done():
                await emitter.put("refunds", ["c"])
                await asyncio.sleep(0.01)
        batch = await waiting
        assert batch is not None
        assert {event.type_name for event in batch.events} == {"refunds"}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"start": "yesterday"}, "moment_invalid"),
        ({"start": "1:2"}, "place_invalid"),
        ({"start": "1000000"}, "place_beyond_end"),
        ({"start": "oldest", "types": ["flights"]}, "type_unknown"),
        ({"start": "oldest", "types": ["notes"]}, "type_not_read"),
        ({"start": "oldest", "types": []}, "option_invalid"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_code(broker: Daemon, options: dict[str, Any], code: str) -> None:
    async with reader_of(broker) as reader:
        with pytest.raises(Refused) as refused:
            await reader.at(**options).next_batch()
        assert (refused.value.code, bool(refused.value.next_step)) == (code, True)


async def test_only_roles_of_readers_may_read(broker: Daemon) -> None:
    async with reader_of(broker, "store_1") as reader:
        with pytest.raises(Refused) as refused:
            await reader.at("oldest").next_batch()
        assert refused.value.code == "not_a_reader"
