"""A node emits what a bulk worker made of a large event: items a second, from its report until the envelope is sealed.

There is no floor. ``broker_cpu_s`` is the broker's processor time from the worker's registration on. On SQLite both
include the time in which the broker takes over the files of the output.
"""

from datetime import datetime
from statistics import median

import sqlalchemy as sa

from benchmarks.backlog import add_backlog
from benchmarks.bus import running_bus, set_up
from benchmarks.buses import CHAINED, WORKER
from benchmarks.databases import Databases
from benchmarks.processes import cpu_seconds, peaks_mib
from benchmarks.programs.running import MOST_SECONDS, reports, running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.database.connection import reading

_EMITTED = sa.select(model.envelope.c.closed_at).where(model.envelope.c.position == 2)
"""When the envelope was sealed that comes behind that of the event."""


def measure(databases: Databases, sizes: Sizes) -> Result:
    """One event in a database of its own for each round."""
    rounds = [_round(databases, sizes.output_items) for _ in range(sizes.rounds)]
    seconds, cpu, peaks = (median(each) for each in zip(*rounds, strict=True))
    more = {"broker_cpu_s": cpu, "broker_peak_mib": peaks}
    return Result(sizes.output_items / seconds, None, "items/s", more)


def _round(databases: Databases, items: int) -> tuple[float, float, float]:
    """Seconds, those of the broker's processor, and its peak of memory."""
    with databases() as url:
        set_up(url, CHAINED)
        add_backlog(url, 1, items)
        with running_bus(url, None) as daemon:
            before = cpu_seconds(daemon.pid)
            with running("makes_output", daemon.back, WORKER, url) as worker:
                wait_until(lambda: _sealed_at(url) is not None, "the output is emitted", MOST_SECONDS)
                cpu, peak = cpu_seconds(daemon.pid) - before, peaks_mib(daemon.pid)
                (report,) = reports(worker)
        sealed_at = _sealed_at(url)
        assert sealed_at is not None
        return sealed_at.timestamp() - report["at"], cpu, peak


def _sealed_at(url: str) -> datetime | None:
    with reading(url) as connection:
        found: datetime | None = connection.execute(_EMITTED).scalar()
    return found
