"""The broker is killed while it lists the log of an older program: no block is listed in part, and it goes on there."""

import asyncio
import uuid
from collections import Counter

import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.journal import looking
from tests.support.long_log import newest_graphs, put_log
from tests.support.old_clients import OldConsumer
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, read_contents_end

BLOCKS = 12
KILLS = 2


def listed(url: str) -> int:
    """How many blocks are listed; each must be so as a whole, and no other in part."""
    with reading(url) as connection:
        end = read_contents_end(connection)
        bits: Counter[int] = Counter()
        for block, positions in connection.execute(sa.select(model.contents.c.block, model.contents.c.positions)):
            bits[block] += int.from_bytes(positions, "little").bit_count()
    # The broker may have listed another one between the two reads.
    assert set(bits) >= set(range(end // BLOCK_POSITIONS))
    assert set(bits.values()) <= {BLOCK_POSITIONS}
    return end // BLOCK_POSITIONS


def fill(url: str) -> list[uuid.UUID]:
    """Blocks of envelopes that no role is owed, and one in the first and one in the last that a role is."""
    with looking(url) as connection:
        graphs = newest_graphs(connection)
        log = [[graphs["often"]]] * (BLOCKS * BLOCK_POSITIONS)
        log[3] = log[-3] = [graphs["test_event"]]
        ids = put_log(connection, log)
    return [ids[3], ids[-3]]


async def test_no_block_is_listed_in_part(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}, "often": {}})
    rare = await asyncio.to_thread(fill, database_url)
    daemon = await asyncio.to_thread(start_daemon, database_url)
    blocks = 0
    for _ in range(KILLS):
        await eventually(lambda: listed(database_url) > blocks, "another block is listed")  # noqa: B023
        daemon.kill()
        blocks = await asyncio.to_thread(listed, database_url)
        await asyncio.to_thread(daemon.start)
    await eventually(lambda: listed(database_url) == BLOCKS, "all blocks are listed")
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await consumer.wait_for([str(envelope_id) for envelope_id in rare])
