"""From an SDK emitter to an SDK consumer, each in a process of its own with a call per item: items a second, from the
first ``send`` to the commit of the last envelope.

Floor: storing the segments that came of it, a transaction for each envelope, then reading them back in pages as large
as the broker's, on one connection.
"""

import time
from collections.abc import Sequence
from contextlib import closing

from benchmarks.bare import connect, read_all
from benchmarks.batch_intake import store
from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.programs.running import MOST_SECONDS, emit, reports, running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.daemon import Daemon
from tests.support.waiting import wait_until
from xbus.broker.journal.log.segments import SegmentRow

REGISTERED = "recipient registered"

PAGE_ROWS = 4
"""About 4 MiB, as the broker reads."""


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Rounds of a bus and its bare database."""
    return Result.median((_round(databases, sizes) for _ in range(sizes.rounds)), "items/s")


def _round(databases: Databases, sizes: Sizes) -> tuple[float, float]:
    items = sizes.envelopes * sizes.envelope_items
    with databases() as url, closing(connect(url)) as stored:
        with running_bus(url) as daemon:
            seconds = pass_through(daemon, daemon.front, daemon.back, sizes)
        segments = stored.segments()
    return items / seconds, items / _store_and_read(databases, segments, sizes.envelopes)


def pass_through(daemon: Daemon, front: str, back: str, sizes: Sizes) -> float:
    """Seconds from the first ``send`` to the commit of the last envelope, by these addresses."""
    before = daemon.log.count(REGISTERED)
    with running("consumer", back) as consumer:
        wait_until(lambda: daemon.log.count(REGISTERED) > before, "the consumer is registered")
        began, _ = emit(front, sizes.envelopes, sizes.envelope_items)
        wait_until(lambda: len(reports(consumer)) >= sizes.envelopes, "all is delivered", MOST_SECONDS)
        last = reports(consumer)[-1]
        assert last["items"] == sizes.envelopes * sizes.envelope_items, "each item came once"
        return float(last["at"]) - began


def _store_and_read(databases: Databases, segments: Sequence[SegmentRow], groups: int) -> float:
    with databases() as url, closing(connect(url)) as bare:
        writing = store(bare, segments, groups)
        began = time.perf_counter()
        read = sum(map(len, read_all(bare, segments, PAGE_ROWS)))
        reading = time.perf_counter() - began
    assert read == sum(len(segment.data) for segment in segments), "all of it was read back"
    return writing + reading
