"""A journal that has grown: envelopes a second of ``small_10`` where many envelopes were sent before.

The consumer has nothing to do with those: it begins at the end of the log. The floor is the same in a young journal.
"""

from benchmarks.backlog import add_backlog
from benchmarks.bus import running_bus, set_up
from benchmarks.buses import AT_HEAD, NO_CONSUMER
from benchmarks.databases import Databases
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.recipients import taking
from benchmarks.envelopes.rounds import play, result
from benchmarks.result import Result
from benchmarks.sizes import Sizes

GROWN = 100
"""How many times as many envelopes as the young journal has."""


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Measure in a young journal and in one that has grown."""
    young = _measure(databases, sizes, sizes.young_envelopes)
    grown = _measure(databases, sizes, sizes.young_envelopes * GROWN)
    floors = {f"floor_{name}": young.more[name] for name in ("delivered_per_s", "broker_cpu_ms", "broker_peak_mib")}
    return Result(grown.value, young.value, grown.unit, {**grown.more, **floors})


def _measure(databases: Databases, sizes: Sizes, before: int) -> Result:
    load = Load(1, 10, sizes.small_pipelined)
    with databases() as url:
        set_up(url, NO_CONSUMER)
        add_backlog(url, before, 1)
        with running_bus(url, AT_HEAD) as daemon, taking(daemon, load.envelopes) as consumers:
            return result(daemon, [play(daemon, consumers, load) for _ in range(sizes.rounds)], None)
