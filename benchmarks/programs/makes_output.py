"""``python -m benchmarks.programs.makes_output BACK LOGIN URL``: a bulk worker whose output is the event as it is.

It prints as JSON when it reported an output, in seconds of unix time.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable

from benchmarks.bus import PASSWORD
from xbus.broker.journal.bulk.part_writer import open_part, output_hash
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.planning import cut_event
from xbus.recipient import BulkWorker, Handover, Made, run


class Copies(BulkWorker):
    """Answers each item as it is."""

    min_bulk_items = 1

    def __init__(self, url: str) -> None:
        self._url = url

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        made = await asyncio.to_thread(self._make, handover)
        print(json.dumps({"at": time.time()}), flush=True)
        return made

    def _make(self, handover: Handover) -> Made:
        with reading(self._url) as connection:
            (wanted,) = cut_event(connection, handover.source, 1)
        with open_reader(self._url) as reader, open_part(self._url, handover.attempt_id, 0) as part:
            for segment in reader.segments(wanted):
                part.write(segment.items, segment.data, segment.first_index, None)
        return Made(part.written.items, part.written.data_bytes, output_hash([part.written]))


if __name__ == "__main__":
    run(Copies(sys.argv[3]), sys.argv[1], sys.argv[2], PASSWORD)
