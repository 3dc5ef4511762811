"""Small envelopes on buses of other shapes: a worker on the way, four consumers, larger items.

One emitter has ten envelopes in flight. The floor is the bus of ``small_10``, with one consumer.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median

from benchmarks.bus import running_bus
from benchmarks.buses import CHAINED, DECIDING, LAGGING, ORDERED, REAL, WITH_WORKER, WORKER, fan_out
from benchmarks.databases import Databases
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.recipients import registered, taking
from benchmarks.envelopes.rounds import play, result
from benchmarks.envelopes.small import measure
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.daemon import Daemon
from tests.support.processes import Process
from xbus.broker.journal.configuration import BusSpec

CONSUMERS = 4
MOST_OPEN = 128
"""The most envelopes that consumers have open which allow several."""
KILOBYTE = 1_000
MEGABYTE = 1_000_000
FEWER_LARGE = 15
"""Part of the usual envelopes that are sent with items of a megabyte."""


def measure_worker(databases: Databases, sizes: Sizes) -> Result:
    """A worker that passes items on stands between emitter and consumer."""
    return _beside_plain(databases, sizes, WITH_WORKER, works=True)


def measure_chained(databases: Databases, sizes: Sizes) -> Result:
    """What the worker made is sealed as events of another type, which the consumer gets; the floor has no such type.

    Both are played in turns, once before they count.
    """
    load = Load(1, 10, sizes.small_pipelined)
    with ExitStack() as exit_stack:
        chained, unchained = (_working(exit_stack, databases, bus, load) for bus in (CHAINED, WITH_WORKER))
        pairs = [(play(*chained, load), play(*unchained, load)) for _ in range(1 + sizes.rounds)][1:]
        rounds, floors = [one for one, _ in pairs], [floor.delivered for _, floor in pairs]
        found = result(chained[0], rounds, median(floors))
        return replace(found, value=found.more["delivered_per_s"])


def _working(exit_stack: ExitStack, databases: Databases, bus: BusSpec, load: Load) -> tuple[Daemon, Sequence[Process]]:
    """Start a bus with a worker; give its broker and its consumers."""
    daemon = exit_stack.enter_context(running_bus(exit_stack.enter_context(databases()), bus))
    exit_stack.enter_context(registered(daemon, "works", WORKER))
    logins = [login for login in bus.roles if login != WORKER]
    return daemon, exit_stack.enter_context(taking(daemon, load.envelopes, logins))


def measure_fan_out(databases: Databases, sizes: Sizes) -> Result:
    """Each envelope goes to four consumers; it is delivered when the last of them has it."""
    return _beside_plain(databases, sizes, fan_out(CONSUMERS))


def measure_fan_out_several(databases: Databases, sizes: Sizes) -> Result:
    """The same with consumers that may have several envelopes open, which they prepare and commit together."""
    return _beside_plain(databases, sizes, fan_out(CONSUMERS), envelopes=MOST_OPEN)


def measure_fan_out_own(databases: Databases, sizes: Sizes) -> Result:
    """The same where a refusal of a consumer is its own affair, so that none waits for the others."""
    return _beside_plain(databases, sizes, fan_out(CONSUMERS, "own"))


def measure_ordered(databases: Databases, sizes: Sizes) -> Result:
    """The consumer wants order, and the envelopes have a hundred ordering keys."""
    return _beside_plain(databases, sizes, ORDERED, keys=100)


def real(emitters: int, in_flight: int) -> Callable[[Databases, Sizes], Result]:
    """Measure envelopes with the duties of a real bus; the floor is the same load without them.

    It is delivered when the two consumers have it that decide together. A third one lags, and a fourth is absent.
    """

    def measure_real(databases: Databases, sizes: Sizes) -> Result:
        envelopes = sizes.small_single if emitters * in_flight == 1 else sizes.small_pipelined
        load = Load(emitters, in_flight, envelopes)
        with ExitStack() as exit_stack:
            daemon = exit_stack.enter_context(running_bus(exit_stack.enter_context(databases()), REAL))
            plain = exit_stack.enter_context(running_bus(exit_stack.enter_context(databases())))
            exit_stack.enter_context(registered(daemon, "sleeps", LAGGING, load.envelopes))
            consumers = exit_stack.enter_context(taking(daemon, load.envelopes, DECIDING, MOST_OPEN))
            consumer = exit_stack.enter_context(taking(plain, load.envelopes))
            rounds, floors = [], []
            for _ in range(sizes.rounds):
                rounds.append(play(daemon, consumers, replace(load, is_real=True)))
                floors.append(play(plain, consumer, load))
            found = result(daemon, rounds, median(floor.delivered for floor in floors))
            return replace(found, value=found.more["delivered_per_s"])

    return measure_real


def _beside_plain(
    databases: Databases, sizes: Sizes, bus: BusSpec, *, works: bool = False, keys: int = 0, envelopes: int = 1
) -> Result:
    """Measure a bus in turns with that of one consumer, which is the floor."""
    load = Load(1, 10, sizes.small_pipelined)
    with ExitStack() as exit_stack:
        daemon = exit_stack.enter_context(running_bus(exit_stack.enter_context(databases()), bus))
        plain = exit_stack.enter_context(running_bus(exit_stack.enter_context(databases())))
        if works:
            exit_stack.enter_context(registered(daemon, "works", WORKER))
        logins = [login for login in bus.roles if login != WORKER]
        consumers = exit_stack.enter_context(taking(daemon, load.envelopes, logins, envelopes))
        consumer = exit_stack.enter_context(taking(plain, load.envelopes))
        rounds, floors = [], []
        for _ in range(sizes.rounds):
            rounds.append(play(daemon, consumers, replace(load, keys=keys)))
            floors.append(play(plain, consumer, load))
        return result(daemon, rounds, median(floor.acknowledged for floor in floors))


def measure_10_kb(databases: Databases, sizes: Sizes) -> Result:
    """Items of 10 kB, in MB a second."""
    return _measure_bytes(databases, sizes, 10 * KILOBYTE, sizes.small_pipelined)


def measure_1_mb(databases: Databases, sizes: Sizes) -> Result:
    """Items of 1 MB, in MB a second."""
    return _measure_bytes(databases, sizes, MEGABYTE, max(1, sizes.small_pipelined // FEWER_LARGE))


def _measure_bytes(databases: Databases, sizes: Sizes, item_bytes: int, envelopes: int) -> Result:
    found = measure(databases, sizes.rounds, Load(1, 10, envelopes, item_bytes))
    assert found.floor is not None
    size = item_bytes / MEGABYTE
    more = {"acknowledged_per_s": found.value, "delivered_mb_per_s": found.more["delivered_per_s"] * size}
    return replace(found, value=found.value * size, floor=found.floor * size, unit="MB/s", more={**more, **found.more})
