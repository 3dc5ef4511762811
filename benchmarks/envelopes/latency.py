"""From ``put`` to the consumer's ``on_item``, in ms: the median of small envelopes that are put one after another.

The ``quiet`` figures are those of an emitter that waits 10 ms after each answer, so that no two envelopes meet. The
floor is how long a bare echo takes that stores the item in one row of a table and commits.
"""

from statistics import median

from benchmarks.bus import running_bus
from benchmarks.calls import durable_echo, rate
from benchmarks.databases import Databases
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.recipients import taking
from benchmarks.envelopes.rounds import medians, play
from benchmarks.envelopes.stamps import stamped
from benchmarks.envelopes.stopwatch import MS
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.memory import peak_mib

QUIET_MS = 10.0


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Measure both emitters and the floor in turns."""
    calls = sizes.small_single
    busy, quiet = Load(1, 1, calls), Load(1, 1, calls, pause_ms=QUIET_MS)
    with (
        databases() as url,
        running_bus(url) as daemon,
        durable_echo(databases) as echo,
        taking(daemon, calls) as consumers,
    ):
        rounds = [
            (play(daemon, consumers, busy), play(daemon, consumers, quiet), MS / rate(echo, [stamped()], calls, 1))
            for _ in range(sizes.rounds)
        ]
        peak = peak_mib(daemon.pid)
    of_busy, of_quiet, floors = zip(*rounds, strict=True)
    more = medians(of_busy)
    more |= {f"quiet_{name}": value for name, value in medians(of_quiet).items()}
    return Result(more.pop("delivered_p50_ms"), median(floors), "ms", more | {"broker_peak_mib": peak})
