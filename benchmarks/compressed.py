"""As ``end_to_end`` with an event type that is stored compressed. The floor is the same type stored plain, in turns.

The items repeat after a thousand, so segments shrink more than most real ones do.
"""

from dataclasses import replace

from benchmarks.bus import EVENT_TYPE, ONE_CONSUMER, running_bus
from benchmarks.databases import Databases
from benchmarks.end_to_end import pass_through
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from xbus.broker.journal.configuration import BusSpec

COMPRESSED = replace(
    ONE_CONSUMER, event_types={EVENT_TYPE: replace(ONE_CONSUMER.event_types[EVENT_TYPE], compress="zstd")}
)


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Rounds of a compressed and a plain journal, each new."""
    items = sizes.envelopes * sizes.envelope_items
    return Result.median(
        (
            (items / _seconds(databases, COMPRESSED, sizes), items / _seconds(databases, ONE_CONSUMER, sizes))
            for _ in range(sizes.rounds)
        ),
        "items/s",
    )


def _seconds(databases: Databases, bus: BusSpec, sizes: Sizes) -> float:
    with databases() as url, running_bus(url, bus) as daemon:
        return pass_through(daemon, daemon.front, daemon.back, sizes)
