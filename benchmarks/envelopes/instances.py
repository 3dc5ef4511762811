"""A consumer that sleeps for a millisecond on each envelope: what four programs of its role deliver in a second.

The floor is what one program delivers, so the ratio is the gain. The backlog is written straight into the database;
the time counts from the moment at which each program has had its first envelopes.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.backlog import add_backlog
from benchmarks.bus import CONSUMER, ONE_CONSUMER, running_bus, set_up
from benchmarks.databases import Databases
from benchmarks.envelopes.recipients import registered
from benchmarks.envelopes.rounds import most_seconds_of
from benchmarks.programs.running import reports
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.processes import Process
from tests.support.waiting import wait_until
from xbus.broker.journal.configuration import RoleSpec

INSTANCES = 4
MARKS = 100
"""So many times each program says how far it is, if it gets its share."""


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Measure once: the number of envelopes makes up for the rounds."""
    rates = [_rate(databases, sizes.catch_up_envelopes // INSTANCES, instances) for instances in (INSTANCES, 1)]
    return Result(rates[0], rates[1], "envelopes/s")


def _rate(databases: Databases, of_each: int, instances: int) -> float:
    envelopes, every = of_each * instances, max(1, of_each // MARKS)
    bus = replace(ONE_CONSUMER, roles={CONSUMER: RoleSpec(CONSUMER, CONSUMER, instances=instances)})
    with databases() as url, ExitStack() as exit_stack:
        set_up(url, bus)
        add_backlog(url, envelopes, 1)
        daemon = exit_stack.enter_context(running_bus(url, bus))
        programs = [exit_stack.enter_context(registered(daemon, "sleeps", CONSUMER, every)) for _ in range(instances)]
        most_marks = envelopes // every - instances
        wait_until(lambda: sum(map(_marks, programs)) >= most_marks, "all is delivered", most_seconds_of(envelopes))
        return _rate_of(programs, every)


def _marks(program: Process) -> int:
    return program.text.count("\n")


def _rate_of(programs: Sequence[Process], every: int) -> float:
    """The envelopes a second from the moment at which all programs are at work."""
    marks: list[list[float]] = [[report["at"] for report in reports(program)] for program in programs]
    began = max(of_one[0] for of_one in marks if of_one)
    ended = max(of_one[-1] for of_one in marks if of_one)
    taken = every * sum(at > began for of_one in marks for at in of_one)
    seconds: float = ended - began
    return taken / max(seconds, 1e-6)
