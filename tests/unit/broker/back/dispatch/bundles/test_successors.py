"""Bundles whose recipient is replaced while a worker has them: the next one gets all of it, in order."""

import asyncio
from typing import Any

import sqlalchemy as sa

from tests.support.back import PATIENCE_SECONDS, Broker, running
from tests.support.bundles import NOT_BEGUN, Wire, bundles, letters, until_states
from tests.support.recipients import BUNDLES
from xbus import model
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.journal.journal import Journal
from xbus.rpc.codec import pack_items

RETRIES = RetryPolicy(attempts=3, first_delay=0)


def held() -> "asyncio.Future[Any]":
    """An answer that comes when the test gives it."""
    return asyncio.get_running_loop().create_future()


def as_it_is(bundle: Wire) -> list[Any]:
    """What a worker answers that passes all on."""
    return [[True, [[list(batch) for batch in event[2]] for event in events]] for _, events, *_ in bundle]


async def want_order(journal: Journal) -> None:
    def carry_out(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.role).where(model.role.c.login == "store_1").values(ordered=True))

    await journal.read(carry_out)


async def until_read(broker: Broker) -> None:
    delivering = broker.back._assembly
    await broker.until(lambda: all(lane.position == delivering._log.head for lane in delivering.lanes._lanes))
    await settle()


async def settle() -> None:
    """Let all go on that can."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_the_next_recipient_gets_what_a_worker_had_and_did_not_begin(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        at_worker = held()
        worker = await broker.register("names_1", BUNDLES, xbus_take_envelopes=at_worker)
        for item in (b"a", b"b", b"c"):
            await broker.put(item, type_name="flights")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: bundles(broker, "names_1") == ["abc"])
        await broker.leave("store_1")
        await broker.register("store_1", BUNDLES)
        await until_read(broker)
        worker.answers["xbus.take_envelopes"] = as_it_is
        at_worker.set_result([[True, [[[0, 1, pack_items([b"a"]), None]]]], NOT_BEGUN, NOT_BEGUN])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await broker.until(lambda: set(letters(broker)) == set("abc"))
            await until_states(broker, [])
    assert await broker.cursor() == 3


async def test_the_next_recipient_waits_for_a_run_though_bundles_waited_behind_it(journal: Journal) -> None:
    """1. A run of a large envelope is at a worker. 2. Small ones wait for the slot. 3. Another recipient comes.

    What waited is over then, and the run is not: nothing of its key may overtake it.
    """
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        at_worker = held()
        worker = await broker.register("names_1", BUNDLES, start_event=at_worker)
        await broker.register("store_1", BUNDLES)
        await broker.put(b"x" * 70_000, ordering_key="k", type_name="flights")
        await broker.until(lambda: "start_event" in broker.script.verbs("names_1"))
        await broker.put(b"b", ordering_key="l")
        await broker.put(b"c", ordering_key="k")
        await until_read(broker)
        await broker.leave("store_1")
        await broker.register("store_1", BUNDLES)
        (lane,) = broker.back._assembly.lanes._lanes
        await broker.until(lambda: lane.position)
        await settle()
        assert broker.items("store_1") == []
        del worker.answers["start_event"]
        at_worker.set_result([True, None])
        await broker.until(lambda: len(broker.items("store_1")) == 3)
        await until_states(broker, [])
        assert broker.items("store_1").index(b"x" * 70_000) < broker.items("store_1").index(b"c")
