"""The newest events of a type, on every database."""

import uuid

from tests.support.journal import Scribe
from tests.support.long_log import newest_graphs, put_log
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.envelopes.search import SentEvents, read_recent


async def read(journal: Journal, type_name: str, last: int) -> list[SentEvents]:
    return await journal.read(lambda connection: list(read_recent(connection, type_name, last)))


async def test_the_newest_come_first_and_repeats_are_left_out(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"a"])
    await scribe.put([b"f"], type_name="flights")
    second = await scribe.put([b"b"], [b"c"], [])
    await journal.write(await scribe.again(first.envelope_id))
    found = await read(journal, "notes", 10)
    assert [(each.position, each.envelope_id, each.emitter, each.events) for each in found] == [
        (3, second.envelope_id, "north", 3),
        (1, first.envelope_id, "north", 1),
    ]
    assert [(each.position, each.events) for each in await read(journal, "notes", 2)] == [(3, 2)]
    assert await read(journal, "secrets", 10) == await read(journal, "nothing", 10) == []


async def test_a_long_log_is_read_page_by_page(journal: Journal) -> None:
    def fill(connection: object) -> list[uuid.UUID]:
        graphs = newest_graphs(connection)  # type: ignore[arg-type]
        return put_log(connection, [[graphs["notes"]], [graphs["flights"]]] * 1_500)  # type: ignore[arg-type]

    ids = await journal.run(fill)
    found = await read(journal, "notes", 1_200)
    assert [each.envelope_id for each in found] == ids[::2][:-1_201:-1]
    assert len(await read(journal, "flights", 5_000)) == 1_500
