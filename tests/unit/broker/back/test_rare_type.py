"""A role of a rare type: the back finds what it is owed without reading the rest of a long log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.clock import StandingClock
from tests.support.journal import Scribe, memory_engine
from tests.support.long_log import newest_graphs, put_log
from tests.support.recipients import NEW
from xbus.broker.housekeeping.contents import ContentsKeeper
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.contents import BLOCK_POSITIONS
from xbus.broker.journal.log.reading import read_head


async def fill(journal: Journal, blocks: int) -> None:
    """Let there be as many envelopes that lead nowhere."""

    def put(connection: sa.Connection) -> None:
        put_log(connection, [[newest_graphs(connection)["secrets"]]] * (blocks * BLOCK_POSITIONS))

    await journal.run(put)


async def rare(journal: Journal, blocks: int) -> int:
    """Three notes far from each other, in a log that is listed as far as its blocks are full; returns its end."""
    scribe = await Scribe.of(journal)
    for item in (b"one", b"two", b"three"):
        await scribe.put([item])
        await fill(journal, blocks)
    await ContentsKeeper(journal, StandingClock()).catch_up()
    return await journal.read(read_head)


@asynccontextmanager
async def counting(engine: sa.Engine) -> AsyncIterator[list[str]]:
    """The statements that are executed."""
    statements: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        statements.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    yield statements
    sa.event.remove(engine, "before_cursor_execute", note)


async def statements_of_catching_up(blocks: int) -> int:
    """How many statements read envelopes until a role of the rare type has caught up."""
    engine = memory_engine()
    async with Journal(engine, "broker") as journal:
        end = await rare(journal, blocks)
        async with counting(engine) as statements, running(journal) as broker:
            await broker.register("store_1")
            await broker.until(lambda: broker.items("store_1") == [b"one", b"two", b"three"])
            await until_at(broker, end)
        return sum("FROM envelope" in statement for statement in statements)


async def until_at(broker: Broker, position: int) -> None:
    while await broker.cursor() < position:
        await asyncio.sleep(0.001)


async def test_catching_up_costs_the_same_in_a_long_log() -> None:
    short, long = [await statements_of_catching_up(blocks) for blocks in (1, 4)]
    # As a page is a hundred envelopes, reading all would take ninety statements more.
    assert abs(long - short) <= 10


async def test_what_is_far_apart_comes_again_after_a_crash(journal: Journal) -> None:
    end = await rare(journal, 2)
    async with running(journal, clean=False) as broker:
        never: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        await broker.register("store_1", replace(NEW, envelopes=8), xbus_take_event=never)
        await broker.until(lambda: broker.items("store_1") == [b"one", b"two", b"three"])
    async with running(journal) as broker:
        assert set((await broker.rows()).values()) == {("retry", 1, "broker_stopped")}
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"one", b"two", b"three"])
        await broker.until_rows({})
        await until_at(broker, end)


async def test_a_role_gets_what_is_beyond_the_listed_part(journal: Journal) -> None:
    await rare(journal, 1)
    async with running(journal) as broker:
        await fill(journal, 2)
        await broker.put(b"four")
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"one", b"two", b"three", b"four"])
