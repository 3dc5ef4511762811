"""Consumer roles that have nothing to do: the broker's processor time for a small envelope, in ms.

The roles are those of an event type that nobody sends, and no program is logged in for them. One emitter has ten
envelopes in flight. The floor is the same on a bus without such roles.
"""

from collections.abc import Callable

from benchmarks.bus import add_roles, running_bus, set_up
from benchmarks.buses import IDLE, WITH_IDLE
from benchmarks.databases import Databases
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.recipients import taking
from benchmarks.envelopes.rounds import play, result
from benchmarks.result import Result
from benchmarks.sizes import Sizes

COST = "broker_cpu_ms"


def with_roles(roles: int) -> Callable[[Databases, Sizes], Result]:
    """Make the scenario with so many idle roles."""

    def measure(databases: Databases, sizes: Sizes) -> Result:
        found, floor = _measure(databases, sizes, roles), _measure(databases, sizes, 0)
        more = {name: value for name, value in found.more.items() if name != COST}
        more = {"acknowledged_per_s": found.value, **more, "floor_peak_mib": floor.more["broker_peak_mib"]}
        return Result(found.more[COST], floor.more[COST], "ms", more)

    return measure


def _measure(databases: Databases, sizes: Sizes, roles: int) -> Result:
    load = Load(1, 10, sizes.small_pipelined)
    with databases() as url:
        set_up(url, WITH_IDLE)
        if roles:
            add_roles(url, IDLE, [f"{IDLE}_{number}" for number in range(roles)])
        with running_bus(url, None) as daemon, taking(daemon, load.envelopes) as consumers:
            return result(daemon, [play(daemon, consumers, load) for _ in range(sizes.rounds)], None)
