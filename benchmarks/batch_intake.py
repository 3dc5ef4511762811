"""SDK batches: how many items a second an emitter, with a call per item, gets durable and sealed; nobody consumes them.

Floor: storing the segments that came of it, the very same rows, by COPY BINARY (PostgreSQL) or INSERT (SQLite), with as
many to a commit as the bus committed on average.
"""

import math
import time
from collections.abc import Sequence
from contextlib import closing

from benchmarks.bare import Bare, connect
from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.programs.running import emit
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from xbus.broker.journal.log.segments import SegmentRow


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Rounds of a bus and its bare database."""
    return Result.median((_round(databases, sizes) for _ in range(sizes.rounds)), "items/s")


def _round(databases: Databases, sizes: Sizes) -> tuple[float, float]:
    items = sizes.envelopes * sizes.envelope_items
    with databases() as url, closing(connect(url)) as stored:
        with running_bus(url) as daemon:
            groups_before = stored.groups()
            began, ended = emit(daemon.front, sizes.envelopes, sizes.envelope_items)
            groups = stored.groups() - groups_before
        segments = stored.segments()
    with databases() as url, closing(connect(url)) as bare:
        return items / (ended - began), items / store(bare, segments, groups)


def store(bare: Bare, segments: Sequence[SegmentRow], groups: int) -> float:
    """How many seconds it takes to store these segments in so many transactions."""
    size = math.ceil(len(segments) / groups)
    began = time.perf_counter()
    for start in range(0, len(segments), size):
        bare.store(segments[start : start + size])
    return time.perf_counter() - began
