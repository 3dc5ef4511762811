"""The broker is killed again and again while a node emits outputs: each is emitted once, and none is left open."""

import asyncio
import random

import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.attempts import attempts
from tests.support.bulk_worker import SOON, Halves
from tests.support.chained import add_copies, copied_hashes, output_hashes
from tests.support.daemon import Options
from tests.support.sdk import emit, send_values
from tests.support.serving import serving
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.database.connection import connected, reading
from xbus.broker.journal.fsck.content import check_content

KILLS = 6
VALUES = [f"{number}" + "x" * 2_000 for number in range(3_000)]
"""An output has each of them twice: it goes in several pages."""

MOST_SECONDS = 0.4
"""A broker lives so long at the most once an output is ready: it dies before, amid and behind its copying."""

PATIENT: Options = {"back": {**SOON["back"], "attempts": 100}, "supervision": SOON["supervision"]}


def ready(url: str) -> int:
    return attempts(url).count(("ready", None))


async def test_each_output_is_emitted_once_however_often_the_broker_is_killed(
    database_url: str, start_daemon: StartDaemon
) -> None:
    choices = random.Random(82)
    add_copies(database_url, "numbers", "halves")
    daemon = start_daemon(database_url, PATIENT)
    async with serving(daemon, "halves_1", Halves(database_url)):
        for number in range(1, KILLS + 1):
            await emit(daemon, send_values([f"{number} of {KILLS}", *VALUES]))
            await eventually(lambda number=number: ready(database_url) == number, "the output is ready")  # type: ignore[misc]
            await asyncio.sleep(choices.uniform(0, MOST_SECONDS))
            daemon.crash()
            await asyncio.to_thread(daemon.start)
        await eventually(lambda: len(copied_hashes(database_url)) == KILLS, "all is emitted")
    assert copied_hashes(database_url) == output_hashes(database_url)
    with reading(database_url) as connection:
        assert "open" not in connection.execute(sa.select(model.envelope.c.state)).scalars().all()
    with connected(database_url) as connection:
        assert [*check_content(connection, lambda rows: None)] == []
