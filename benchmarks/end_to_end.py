"""From an SDK emitter to an SDK consumer, each in a process of its own with a call per item: items a second, from the
first ``send`` to the commit of the last envelope.

Floor: storing the segments that came of it, a transaction for each envelope, then reading them back in pages as large
as the broker's, on one connection.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing

from benchmarks.bare import connect, read_all
from benchmarks.batch_intake import store
from benchmarks.bus import CONSUMER, running_bus
from benchmarks.buses import WITH_WORKER, WORKER, fan_out
from benchmarks.databases import Databases
from benchmarks.envelopes.recipients import REGISTERED, registered
from benchmarks.programs.running import MOST_SECONDS, emit, reports, running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.daemon import Daemon
from tests.support.waiting import wait_until
from xbus.broker.journal.configuration import BusSpec
from xbus.broker.journal.log.segments import SegmentRow

CONSUMERS = 4

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


def measure_worker(databases: Databases, sizes: Sizes) -> Result:
    """A worker that passes each item on stands on the way; the floor is the same bus without it, in turns."""
    return _beside_one(databases, sizes, WITH_WORKER)


def measure_four(databases: Databases, sizes: Sizes) -> Result:
    """All goes to four consumers; the floor is the same bus with one, in turns."""
    return _beside_one(databases, sizes, fan_out(CONSUMERS))


def _beside_one(databases: Databases, sizes: Sizes, bus: BusSpec) -> Result:
    items = sizes.envelopes * sizes.envelope_items
    consumers = [login for login in bus.roles if login != WORKER]
    with ExitStack() as exit_stack:
        daemon = exit_stack.enter_context(running_bus(exit_stack.enter_context(databases()), bus))
        plain = exit_stack.enter_context(running_bus(exit_stack.enter_context(databases())))
        if WORKER in bus.roles:
            exit_stack.enter_context(registered(daemon, "works", WORKER))
        rounds = [
            (
                items / pass_through(daemon, daemon.front, daemon.back, sizes, consumers),
                items / pass_through(plain, plain.front, plain.back, sizes),
            )
            for _ in range(sizes.rounds)
        ]
        return Result.median(rounds, "items/s")


def pass_through(daemon: Daemon, front: str, back: str, sizes: Sizes, consumers: Sequence[str] = (CONSUMER,)) -> float:
    """Seconds from the first ``send`` to the last commit of the last envelope, by these addresses.

    Args:
        consumers: the logins of those who take all of it.
    """
    before = daemon.log.count(REGISTERED)
    with ExitStack() as exit_stack:
        running_ones = [exit_stack.enter_context(running("consumer", back, login)) for login in consumers]
        wait_until(lambda: daemon.log.count(REGISTERED) >= before + len(consumers), "all are registered")
        began, _ = emit(front, sizes.envelopes, sizes.envelope_items)
        ended = began
        for consumer in running_ones:
            wait_until(lambda: len(reports(consumer)) >= sizes.envelopes, "all is delivered", MOST_SECONDS)  # noqa: B023
            last = reports(consumer)[-1]
            assert last["items"] == sizes.envelopes * sizes.envelope_items, "each item came once"
            ended = max(ended, float(last["at"]))
        return ended - began


def _store_and_read(databases: Databases, segments: Sequence[SegmentRow], groups: int) -> float:
    with databases() as url, closing(connect(url)) as bare:
        writing = store(bare, segments, groups)
        began = time.perf_counter()
        read = sum(map(len, read_all(bare, segments, PAGE_ROWS)))
        reading = time.perf_counter() - began
    assert read == sum(len(segment.data) for segment in segments), "all of it was read back"
    return writing + reading
