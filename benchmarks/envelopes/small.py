"""Envelopes of one item of 200 bytes, put with the asyncio SDK: how many a second are acknowledged, and so durable.

``delivered_per_s`` is how many a second a consumer had committed. The floor is a bare echo in a process of its own,
which stores what it gets in one row of a table and commits before it sends it back, with as many calls in flight.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.ack import connected, rate
from benchmarks.bus import CONSUMER, running_bus
from benchmarks.databases import Databases
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.rounds import medians, play
from benchmarks.items import sample
from benchmarks.programs.running import running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.daemon import Daemon
from tests.support.memory import peak_mib
from tests.support.processes import Process
from tests.support.waiting import wait_until


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


def measure(databases: Databases, rounds: int, load: Load) -> Result:
    """Measure a load and its floor in turns."""
    with databases() as url, running_bus(url) as daemon, databases() as bare, running("echo", bare) as echo:
        wait_until(lambda: echo.text.endswith("\n"), "the echo is ready")
        with taking(daemon, load.envelopes) as consumer, connected(echo.text.strip()) as echoing:
            item, in_flight = [sample()[0]], load.emitters * load.in_flight
            found = [
                (play(daemon, consumer, load), rate(echoing, item, load.envelopes, in_flight)) for _ in range(rounds)
            ]
            played = [one for one, _ in found]
            more = {"delivered_per_s": median(one.delivered for one in played), **medians(played)}
            more["broker_peak_mib"] = peak_mib(daemon.pid)
    return Result(median(one.acknowledged for one in played), median(floor for _, floor in found), "envelopes/s", more)


@contextmanager
def taking(daemon: Daemon, every: int, login: str = CONSUMER) -> Iterator[Process]:
    """A consumer that is registered, and reports after so many envelopes, again and again."""
    registered = daemon.log.count("recipient registered")
    with running("takes", daemon.back, login, every) as consumer:
        wait_until(lambda: daemon.log.count("recipient registered") > registered, "the consumer is registered")
        yield consumer
