"""Programs of a reader that read what is in the log, in items of 200 bytes: items a second, from the first call for a
batch to the last batch that is done.

``reader`` is one program and one range over large envelopes, ``reader_five`` five programs that share eight ranges of
the same, ``reader_small`` one program and one range over envelopes of one item. The log is written straight into the
database. Floor: reading the stored segments in pages of about the same size on one connection.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace

from benchmarks.backlog import add_backlog
from benchmarks.bare import connect, read_all
from benchmarks.bus import EVENT_TYPE, ONE_CONSUMER, running_bus, set_up
from benchmarks.databases import Databases
from benchmarks.processes import cpu_seconds
from benchmarks.programs.running import MOST_SECONDS, reports, running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.memory import peak_mib
from tests.support.waiting import wait_until
from xbus.broker.journal.configuration import BusSpec, ReaderSpec, RoleSpec

READER = "statistics"

PAGE_ROWS = 4
"""About 4 MiB, as a batch."""


def with_programs(programs: int, ranges: int) -> Callable[[Databases, Sizes], Result]:
    """Measure so many programs that share so many ranges, over large envelopes."""

    def measure(databases: Databases, sizes: Sizes) -> Result:
        return _measure(databases, sizes.envelopes, sizes.envelope_items, programs, ranges)

    return measure


def measure_small(databases: Databases, sizes: Sizes) -> Result:
    """Measure one program over envelopes of one item."""
    return _measure(databases, sizes.catch_up_envelopes, 1, 1, 1)


def _measure(databases: Databases, envelopes: int, items: int, programs: int, ranges: int) -> Result:
    with databases() as url:
        set_up(url, _bus(programs, ranges))
        add_backlog(url, envelopes, items)
        with running_bus(url, None) as daemon:
            before = cpu_seconds(daemon.pid)
            rate = _read(daemon.back, envelopes * items, programs)
            more = {
                "broker_cpu_s": cpu_seconds(daemon.pid) - before,
                "broker_peak_mib": peak_mib(daemon.pid),
            }
        floor = None if items == 1 else envelopes * items / _bare_seconds(databases, url)
    return Result(rate, floor, "items/s", more)


def _bus(programs: int, ranges: int) -> BusSpec:
    reader = ReaderSpec(READER, frozenset({EVENT_TYPE}), ranges=ranges, start="oldest")
    roles = {f"{READER}_{number}": RoleSpec(f"{READER}_{number}", READER) for number in range(programs)}
    return replace(ONE_CONSUMER, roles={**ONE_CONSUMER.roles, **roles}, readers={READER: reader})


def _read(back: str, items: int, programs: int) -> float:
    with ExitStack() as ending:
        reading = [ending.enter_context(running("reads", back, f"{READER}_{number}")) for number in range(programs)]

        def found() -> list[dict[str, float]]:
            return [report for program in reading for report in reports(program)]

        wait_until(lambda: sum(report["items"] for report in found()) >= items, "all is read", MOST_SECONDS)
        done = found()
    assert sum(report["items"] for report in done) == items, "each item came once"
    return items / (max(report["at"] for report in done) - min(report["began"] for report in done))


def _bare_seconds(databases: Databases, url: str) -> float:
    with closing(connect(url)) as stored, databases() as of_floor, closing(connect(of_floor)) as bare:
        segments = stored.segments()
        bare.store(segments)
        began = time.perf_counter()
        for _ in read_all(bare, segments, PAGE_ROWS):
            pass
        return time.perf_counter() - began
