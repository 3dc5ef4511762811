"""Envelopes of one item of 200 bytes, put with the asyncio SDK: how many a second are acknowledged, and so durable.

``delivered_per_s`` is how many a second a consumer got. The floor is a bare echo in a process of its own,
which stores what it gets in one row of a table and commits before it sends it back, with as many calls in flight. It
knows nothing of delivery.
"""

from statistics import median

from benchmarks.bus import running_bus
from benchmarks.calls import durable_echo, rate
from benchmarks.databases import Databases
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.recipients import taking
from benchmarks.envelopes.rounds import play, result
from benchmarks.envelopes.stamps import stamped
from benchmarks.result import Result
from benchmarks.sizes import Sizes


def measure_1(databases: Databases, sizes: Sizes) -> Result:
    """One emitter with one envelope in flight."""
    return measure(databases, sizes.rounds, Load(1, 1, sizes.small_single))


def measure_10(databases: Databases, sizes: Sizes) -> Result:
    """One emitter with ten envelopes in flight."""
    return measure(databases, sizes.rounds, Load(1, 10, sizes.small_pipelined))


def measure_100(databases: Databases, sizes: Sizes) -> Result:
    """One emitter with a hundred envelopes in flight."""
    return measure(databases, sizes.rounds, Load(1, 100, sizes.small_pipelined))


def measure_100_emitters(databases: Databases, sizes: Sizes) -> Result:
    """A hundred emitters with one envelope in flight each."""
    return measure(databases, sizes.rounds, Load(100, 1, sizes.small_pipelined))


def measure_old_1(databases: Databases, sizes: Sizes) -> Result:
    """One old client with its five calls for an envelope, one after another."""
    return measure(databases, sizes.rounds, Load(1, 1, sizes.small_single, is_old=True))


def measure_old_100(databases: Databases, sizes: Sizes) -> Result:
    """A hundred old clients with their five calls for an envelope."""
    return measure(databases, sizes.rounds, Load(100, 1, sizes.small_pipelined, is_old=True))


def measure(databases: Databases, rounds: int, load: Load) -> Result:
    """Measure a load and its floor in turns."""
    with (
        databases() as url,
        running_bus(url) as daemon,
        durable_echo(databases) as echo,
        taking(daemon, load.envelopes) as consumers,
    ):
        message, in_flight = [stamped(load.item_bytes)], load.emitters * load.in_flight
        found = [(play(daemon, consumers, load), rate(echo, message, load.envelopes, in_flight)) for _ in range(rounds)]
        return result(daemon, [one for one, _ in found], median(floor for _, floor in found))
