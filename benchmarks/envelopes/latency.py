"""From ``put`` to the consumer's ``on_item``, in ms: the median of small envelopes that are put one after another.

The ``quiet`` figures are those of an emitter that waits 10 ms after each answer, so that no two envelopes meet. The
floor is how long a bare echo takes that stores the item in one row of a table and commits.
"""

from statistics import median

from benchmarks.ack import connected, rate
from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.rounds import MS, medians, play
from benchmarks.envelopes.small import taking
from benchmarks.items import sample
from benchmarks.programs.running import running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.memory import peak_mib
from tests.support.waiting import wait_until

QUIET_MS = 10.0


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Measure both emitters and the floor in turns."""
    calls = sizes.small_single
    with databases() as url, running_bus(url) as daemon, databases() as bare, running("echo", bare) as echo:
        wait_until(lambda: echo.text.endswith("\n"), "the echo is ready")
        with taking(daemon, calls) as consumer, connected(echo.text.strip()) as echoing:
            rounds = [
                (
                    play(daemon, consumer, Load(1, 1, calls)),
                    play(daemon, consumer, Load(1, 1, calls, pause_ms=QUIET_MS)),
                    MS / rate(echoing, [sample()[0]], calls, 1),
                )
                for _ in range(sizes.rounds)
            ]
        busy, quiet, floors = zip(*rounds, strict=True)
        more = medians(busy) | {f"quiet_{name}": value for name, value in medians(quiet).items()}
        more["broker_peak_mib"] = peak_mib(daemon.pid)
    return Result(more.pop("delivered_p50_ms"), median(floors), "ms", more)
