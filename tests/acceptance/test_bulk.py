"""Large events handed over to a bulk worker as a whole, with the real broker and our own recipients."""

from typing import Any

from tests.acceptance.test_sdk import Keeps, emit, send_numbers, serving
from tests.conftest import StartDaemon
from tests.support.bulk_worker import Halves
from tests.support.bus import add_bus
from tests.support.waiting import eventually

GRAPH = {"numbers": {"halves": ["store"], "store": []}}


def halved(count: int) -> list[tuple[int, Any]]:
    return [pair for number in range(0, count, 2) for pair in ((number, number), (number, str(number)))]


async def test_a_large_event_is_made_as_a_whole_and_a_small_one_item_by_item(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    keeps, halves = Keeps(), Halves(database_url)
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        large = await emit(daemon, send_numbers(20_000))
        small = await emit(daemon, send_numbers(99))
        await eventually(lambda: len(keeps.committed) == 2, "the consumer commits both", 20)
    assert keeps.committed[large.envelope_id] == halved(20_000)
    assert keeps.committed[small.envelope_id] == halved(99)
    assert [str(handover.envelope_id) for handover in halves.handed_over] == [large.envelope_id]
    assert len(halves.ordinary) == 1
