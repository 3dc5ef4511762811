"""What a bulk worker made is emitted as it lies in the journal, with the real broker and our own recipients."""

from typing import Literal

import pytest

from tests.conftest import StartDaemon
from tests.support.bulk_worker import SOON, Halves, halved
from tests.support.chained import add_copies, copied_hashes, output_hashes
from tests.support.sdk import Keeps, emit, send_numbers
from tests.support.serving import serving
from tests.support.waiting import eventually

NUMBERS = 5_000


@pytest.mark.parametrize("compress", ["none", "zstd"])
async def test_an_output_is_emitted(
    database_url: str, start_daemon: StartDaemon, compress: Literal["none", "zstd"]
) -> None:
    add_copies(database_url, "numbers", "halves", compress)
    daemon = start_daemon(database_url, SOON)
    keeps, halves = Keeps(), Halves(database_url)
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        for count in (NUMBERS, NUMBERS + 2):
            await emit(daemon, send_numbers(count))
        await eventually(lambda: len(keeps.committed) == 2, "the store has both copies")
    made = [list(enumerate(value for _, value in halved(count))) for count in (NUMBERS, NUMBERS + 2)]
    assert sorted(keeps.committed.values(), key=len) == made
    assert len(halves.handed_over) == 2
    # Items that are compressed, or were sent, are cut anew: only what is copied keeps its segments.
    assert (copied_hashes(database_url) == output_hashes(database_url)) == (compress == "none")
