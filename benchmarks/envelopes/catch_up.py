"""A consumer that was away: how many of the envelopes of one item that wait for it are delivered in a second.

They are counted from its first item to its last. The backlog is written straight into the database, while no broker
runs on it. There is no floor: the broker reads pages of them and writes one row for many, which bare SQL would do too.
"""

from benchmarks.backlog import add_backlog
from benchmarks.bus import running_bus, set_up
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


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Measure once: the number of envelopes makes up for the rounds."""
    envelopes = sizes.catch_up_envelopes
    with databases() as url:
        set_up(url)
        add_backlog(url, envelopes, 1)
        with running_bus(url) as daemon:
            before = cpu_seconds(daemon.pid)
            with taking(daemon, envelopes) as (consumer,):
                wait_until(lambda: reports(consumer), "all is delivered", most_seconds_of(envelopes))
                report = reports(consumer)[-1]
            more = {
                "broker_cpu_ms": (cpu_seconds(daemon.pid) - before) * MS / envelopes,
                "consumer_cpu_ms": report["cpu"] * MS / envelopes,
                "broker_peak_mib": peak_mib(daemon.pid),
            }
    return Result((envelopes - 1) / (report["last"] - report["first"]), None, "envelopes/s", more)
