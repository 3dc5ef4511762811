"""Bad items that are parked alone, in a whole back: the rest is delivered."""

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.journal import memory_engine
from tests.support.recipients import OLD, REFUSED
from xbus import model
from xbus.broker.back.log.batch import RunBatch
from xbus.broker.journal.journal import Journal


@pytest.fixture
def engine() -> sa.Engine:
    """One of a bus whose notes and flights may do without up to two items."""
    engine = memory_engine()
    with engine.begin() as connection:
        wanted = model.event_type.c.name.in_(["notes", "flights"])
        connection.execute(sa.update(model.event_type).where(wanted).values(bad_items="isolate", max_isolated=2))
    return engine


def refusing(*bad: bytes) -> dict[str, Any]:
    """The answers of a recipient that names all items of an event that are bad."""

    def take_event(envelope_id: str, event_id: str, type_name: str, batches: list[Any], commit: bool) -> list[Any]:
        items = [item for batch in batches for item in RunBatch(*batch).singly()]
        wrong = [[indices, f"{item.decode()} is bad"] for indices, item in items if item in bad]
        return [False, wrong] if wrong else [True, None, batches]

    return {"xbus_take_event": take_event}


async def parked_items(broker: Broker) -> Sequence[tuple[str, int, str]]:
    """Login, index and cause of all items that are parked alone."""

    def read(connection: sa.Connection) -> Sequence[tuple[str, int, str]]:
        item = model.parked_item.c
        wanted = sa.select(model.role.c.login, item.item_index, item.cause).join(model.role)
        return [
            (login, index, cause) for login, index, cause in connection.execute(wanted.order_by("login", "item_index"))
        ]

    return await broker.journal.read(read)


async def test_what_a_consumer_refuses_is_parked_alone_for_it(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", **refusing(b"b"))
        await broker.register("store_2")
        await broker.until_together()
        await broker.put(b"a", b"b", b"c")
        await broker.until(lambda: broker.script.verbs("store_1").count("xbus.take_event") == 2)
        await broker.until_rows({})
        assert broker.script.items("store_1")[3:] == [([0], b"a"), ([2], b"c")]
        assert broker.script.items("store_2")[-3:] == [([0], b"a"), ([1], b"b"), ([2], b"c")]
        assert await parked_items(broker) == [("store_1", 1, "b is bad")]


async def test_what_a_worker_refuses_is_parked_for_all_behind_it(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", **refusing(b"b"))
        await broker.register("store_1")
        await broker.register("store_2")
        await broker.until_together()
        await broker.put(b"a", b"b", type_name="flights")
        await broker.until(lambda: broker.items("store_1") == broker.items("store_2") == [b"a"])
        await broker.until_rows({})
        assert await parked_items(broker) == [("store_1", 1, "b is bad"), ("store_2", 1, "b is bad")]


async def test_each_time_it_may_name_others_up_to_the_limit(journal: Journal) -> None:
    bad = [b"a", b"b"]

    def take_event(envelope_id: str, event_id: str, type_name: str, batches: list[Any], commit: bool) -> list[Any]:
        items = [item for batch in batches for item in RunBatch(*batch).singly()]
        wrong = [[indices, "bad"] for indices, item in items if item in bad][:1]
        return [False, wrong] if wrong else [True, None, []]

    async with running(journal) as broker:
        await broker.register("store_1", xbus_take_event=take_event)
        await broker.put(b"a", b"b", b"c", b"d")
        await broker.until(lambda: broker.script.items("store_1")[-2:] == [([2], b"c"), ([3], b"d")])
        bad.append(b"c")
        await broker.put(b"a", b"b", b"c", b"d")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        assert [index for _, index, _ in await parked_items(broker)] == [0, 0, 1, 1]


async def test_old_recipients_may_name_items_too(journal: Journal) -> None:
    def send_item(envelope_id: str, event_id: str, indices: list[int], item: bytes) -> list[Any]:
        return [False, [[indices, "bad"]]] if item == b"b" else [True, None]

    async with running(journal) as broker:
        await broker.register("store_1", OLD, send_item=send_item)
        await broker.put(b"a", b"b", b"c")
        await broker.until_rows({})
        await broker.until(lambda: broker.items("store_1")[-2:] == [b"a", b"c"])
        assert await parked_items(broker) == [("store_1", 1, "bad")]


async def test_a_reason_without_items_parks_the_whole_envelope(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", xbus_take_event=[False, [[[], "all of it"]]])
        await broker.put(b"a")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        assert await parked_items(broker) == []


async def test_types_that_do_not_want_it_are_parked_whole(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("prices_1")
        await broker.register("store_1", xbus_take_event=REFUSED)
        await broker.put(b"a", b"b", type_name="fares")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        assert await parked_items(broker) == []


async def test_an_item_that_was_taken_out_is_not_refused_for_ever(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", xbus_take_event=REFUSED)
        await broker.put(b"a", b"b")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        assert [index for _, index, _ in await parked_items(broker)] == [0]
