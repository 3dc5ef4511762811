"""A bulk worker without Spark: it reads and writes the journal as one would, part by part, when the test lets it."""

import asyncio
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.bus import PASSWORD
from tests.support.daemon import Options
from xbus.broker.journal.bulk.part_writer import PartSummary, open_part, output_hash
from xbus.broker.journal.bulk.segment_reader import BulkSegment, open_reader
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.planning import SegmentRange, cut_event, cut_output
from xbus.errors import Failed
from xbus.recipient import BulkWorker, Envelope, Event, Handover, Item, Made, Refusal, serve
from xbus.rpc.codec import pack_items, unpack, unpack_items

PARTS = 3

GRAPH = {"numbers": {"halves": ["store"], "store": []}}

SOON: Options = {"back": {"first_delay": 0.05, "worker_grace": 0.1}, "supervision": {"heartbeat": 0.1}}
"""Has the broker notice soon who is there, who went, and what is to be tried again."""


class Halves(BulkWorker):
    """Drops odd numbers, and answers all else twice: as it is, and as a text. Refuses what is neither.

    Attributes:
        gate: an output is made only while this is set.
        at_work: set while outputs wait for that.
        handed_over: what it was asked for.
        cancelled: how often it was broken off.
        fails: how many of the next outputs can't be made now.
        lies: of how many of the next outputs it says that more is there than is.
        ordinary: the events that it was sent item by item.
    """

    min_bulk_items = 100

    def __init__(self, url: str) -> None:
        self._url = url
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_work = asyncio.Event()
        self.handed_over: list[Handover] = []
        self.cancelled = 0
        self.fails = 0
        self.lies = 0
        self.ordinary: list[str] = []

    def on_event_start(self, event: Event) -> None:
        self.ordinary.append(event.id)

    def on_item(self, event: Event, item: Item) -> Iterator[object]:
        if not isinstance(item.value, int | str):
            raise Refusal("no number")
        if isinstance(item.value, str) or item.value % 2 == 0:
            yield item
            yield str(item.value)

    def rollback(self, envelope: Envelope) -> None:
        """Nothing is kept."""

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        self.handed_over.append(handover)
        try:
            await self._pass_gate()
            if self.fails:
                self.fails -= 1
                raise Failed("the cluster is away", code="cluster_away")
            summaries: list[PartSummary] = []
            for part, wanted in enumerate(await asyncio.to_thread(self._ranges, handover)):
                summaries.append(await asyncio.to_thread(self._make_part, handover, part, wanted))
                progress((part + 1) / PARTS / 2)
                await self._pass_gate()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        items = sum(part.items for part in summaries)
        if self.lies:
            self.lies -= 1
            items += 1
        return Made(items, sum(part.data_bytes for part in summaries), output_hash(summaries))

    async def _pass_gate(self) -> None:
        self.at_work.set()
        await self.gate.wait()

    def _ranges(self, handover: Handover) -> list[SegmentRange]:
        with reading(self._url) as connection:
            cut = cut_output if handover.is_output else cut_event
            return cut(connection, handover.source, PARTS)

    def _make_part(self, handover: Handover, part: int, wanted: SegmentRange) -> PartSummary:
        bad: list[int] = []
        with open_reader(self._url) as reader, open_part(self._url, handover.attempt_id, part) as writer:
            for segment in reader.segments(wanted):
                made: list[tuple[int, bytes]] = []
                for index, data in _indexed(segment):
                    value = unpack(data)
                    if not isinstance(value, int | str):
                        bad.append(index)
                    elif isinstance(value, str) or value % 2 == 0:
                        made += [(index, bytes(data)), (index, _text(value))]
                sources = struct.pack(f"<{len(made)}q", *(index for index, _ in made))
                writer.write(len(made), pack_items([data for _, data in made]), 0, sources)
        if bad:
            raise Refusal("no number", bad)
        return writer.written


def halved(count: int) -> list[tuple[int, Any]]:
    """What it makes of the numbers from 0 on, each with its index."""
    return [pair for number in range(0, count, 2) for pair in ((number, number), (number, str(number)))]


def _text(value: Any) -> bytes:
    return Item.of(str(value)).data


def _indexed(segment: BulkSegment) -> Iterator[tuple[int, bytes]]:
    items = unpack_items(segment.data, segment.items)
    if segment.sources is None:
        return enumerate(items, segment.first_index)
    return zip(struct.unpack(f"<{segment.items}q", segment.sources), items, strict=True)


def main(url: str, back_url: str, login: str, gate: str) -> None:
    """Serve as a program of its own, which can be killed.

    Args:
        gate: "closed" for one that begins outputs and never ends them.
    """

    class Here(Halves):
        def on_start(self) -> None:
            sys.stdout.write("serves\n")

        async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
            sys.stdout.write(f"makes {handover.attempt_id}\n")
            return await super().make_output(handover, progress)

    async def serve_until_killed() -> None:
        worker = Here(url)
        if gate == "closed":
            worker.gate.clear()
        await serve(worker, back_url, login, PASSWORD, asyncio.Event(), heartbeat_seconds=0.2)

    asyncio.run(serve_until_killed())


if __name__ == "__main__":
    main(*sys.argv[1:])
