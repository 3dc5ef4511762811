"""A rare event type: three of its events stand among many others, and a new role begins at the oldest envelope.

The value is how long it takes until the role has all three, in ms from just before its login. The floor is the same
where the journal has nothing but the three.
"""

from benchmarks.backlog import add_backlog
from benchmarks.bus import running_bus, set_up
from benchmarks.buses import RARE, with_rare
from benchmarks.databases import Databases
from benchmarks.envelopes.recipients import taking
from benchmarks.envelopes.rounds import most_seconds_of
from benchmarks.envelopes.stopwatch import MS
from benchmarks.processes import cpu_seconds
from benchmarks.programs.running import reports
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.memory import peak_mib
from tests.support.waiting import wait_until

EVENTS = 3


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Measure once with the others and once without."""
    found, floor = _measure(databases, sizes.rare_envelopes), _measure(databases, 0)
    return Result(found.pop("ms"), floor["ms"], "ms", found)


def _measure(databases: Databases, envelopes: int) -> dict[str, float]:
    with databases() as url:
        set_up(url, with_rare(has_consumer=False))
        _fill(url, envelopes)
        with running_bus(url, with_rare(has_consumer=True)) as daemon:
            before = cpu_seconds(daemon.pid)
            with taking(daemon, 1, [RARE]) as (consumer,):
                wait_until(lambda: len(reports(consumer)) == EVENTS, "all came", most_seconds_of(envelopes))
                last = reports(consumer)[-1]
                return {
                    "ms": (last["last"] - last["started"]) * MS,
                    "broker_cpu_s": cpu_seconds(daemon.pid) - before,
                    "broker_peak_mib": peak_mib(daemon.pid),
                }


def _fill(url: str, envelopes: int) -> None:
    """Write the others in equal parts, and an event of the rare type behind each part."""
    filled = 0
    for part in range(1, EVENTS + 1):
        others = envelopes * part // EVENTS - envelopes * (part - 1) // EVENTS
        if others:
            add_backlog(url, others, 1, after=filled)
        add_backlog(url, 1, 1, after=filled + others, event_type=RARE)
        filled += others + 1
