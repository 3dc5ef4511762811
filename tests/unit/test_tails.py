"""Tails of a gateway keep what was read last, and all of them together no more than their bound."""

import asyncio

from xbus.http.tails import Tail, TailChunk, TailPace, TailQuestion
from xbus.rpc.codec import Value

KIB = 1024


class Log:
    """A log from which a tail reads chunks of 1 KiB, so many."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks
        self.is_read = asyncio.Event()

    async def read(self, question: TailQuestion, place: Value, wait: float) -> TailChunk:
        assert isinstance(place, list)
        assert isinstance(place[0], int)
        number = place[0]
        if number >= self._chunks:
            self.is_read.set()
            await asyncio.Event().wait()
        chunk = TailChunk({"from": [number, 0, 0], "to": [number + 1, 0, 0], "events": []})
        chunk.text = b"x" * KIB
        return chunk


async def test_many_tails_keep_together_what_a_few_may() -> None:
    pace = TailPace(kept_bytes=8 * KIB, all_bytes=16 * KIB)
    number, log = 1, Log(10)
    tail = Tail(TailQuestion("token", "orders", None), log.read, [0, 0, 0], pace, lambda: number)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(tail.run())
        await log.is_read.wait()
        running.cancel()
    for number, first in ((1, 2), (2, 2), (4, 6), (100, 9)):
        tail.shrink()
        assert tail.begin == [first, 0, 0], number
        assert not tail.covers([first - 1, 0, 0])
        chunk = tail.chunk_from([first, 0, 0])
        assert chunk is not None
        assert chunk.begin == [first, 0, 0]
