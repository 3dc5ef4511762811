"""A worker that counts the items of an event: of a small one as they come, of a large one in the journal."""

import asyncio
import sys
from collections.abc import Callable

from xbus.broker.journal.bulk.part_writer import open_part, output_hash
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.planning import cut_event, cut_output
from xbus.recipient import BulkWorker, Event, Handover, Item, Made, run
from xbus.rpc.codec import pack, pack_items

NO_SOURCE = (-1).to_bytes(8, "little", signed=True)
"""What is made of all items is made of none in particular."""


class Totals(BulkWorker):
    def __init__(self, journal_url: str) -> None:
        self.journal_url = journal_url

    def on_event_start(self, event: Event) -> None:
        event.state["clients"] = 0

    def on_item(self, event: Event, item: Item) -> None:
        event.state["clients"] += 1

    def on_event_end(self, event: Event) -> dict[str, str]:
        return {"name": f"{event.state['clients']} clients"}

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        return await asyncio.to_thread(self.count, handover, progress)

    def count(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        clients = 0
        cut = cut_output if handover.is_output else cut_event
        with reading(self.journal_url) as connection:
            ranges = cut(connection, handover.source, 10)
        with open_reader(self.journal_url) as reader, open_part(self.journal_url, handover.attempt_id, 0) as part:
            for done, some in enumerate(ranges, 1):
                clients += sum(segment.items for segment in reader.segments(some))
                progress(done / len(ranges))
            part.write(1, pack_items([pack({"name": f"{clients} clients"})]), 0, NO_SOURCE)
        made = part.written
        return Made(made.items, made.data_bytes, output_hash([made]))


if __name__ == "__main__":
    back_url = sys.argv[2] if len(sys.argv) > 2 else "tcp://127.0.0.1:4891"
    run(Totals(sys.argv[1]), back_url, login="worker_role", password="password")
