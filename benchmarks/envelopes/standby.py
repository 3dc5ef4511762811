"""What it costs that no commit counts before a standby of PostgreSQL has applied it.

The standby applies each commit with a delay, as one in another building does. The floor is the same load on a server
without a standby, in turns. ``bare_ratio`` is the same of a bare echo, which commits once for all calls that wait.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from statistics import median

import psycopg2

from benchmarks.bus import running_bus
from benchmarks.calls import durable_echo, rate
from benchmarks.databases import Databases, of_server
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.recipients import taking
from benchmarks.envelopes.rounds import play, result
from benchmarks.envelopes.stamps import stamped
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support import postgres
from tests.support.waiting import wait_until

DELAY = "1ms"
FOLLOW_SECONDS = 60.0
_IN_STEP = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


def in_flight(envelopes: int) -> Callable[[Databases, Sizes], Result]:
    """Measure one emitter with so many envelopes in flight."""

    def measure(databases: Databases, sizes: Sizes) -> Result:
        load = Load(1, envelopes, sizes.small_pipelined)
        message = [stamped(load.item_bytes)]
        with ExitStack() as exit_stack:
            first, second = exit_stack.enter_context(postgres.pair(on_disk=True))
            keep_in_step(first, second)
            beside = of_server(exit_stack.enter_context(closing(postgres.Server(first.url))))
            daemons = [
                exit_stack.enter_context(running_bus(exit_stack.enter_context(of()))) for of in (beside, databases)
            ]
            buses = [(daemon, exit_stack.enter_context(taking(daemon, load.envelopes))) for daemon in daemons]
            echoes = [exit_stack.enter_context(durable_echo(of)) for of in (beside, databases)]
            rounds = [[play(*bus, load) for bus in buses] for _ in range(1 + sizes.rounds)][1:]
            bare = [[rate(echo, message, load.envelopes, envelopes) for echo in echoes] for _ in range(sizes.rounds)]
            found = result(daemons[0], [one for one, _ in rounds], median(plain.delivered for _, plain in rounds))
            bare_ratio = median(one / plain for one, plain in bare)
            return replace(found, value=found.more["delivered_per_s"], more={**found.more, "bare_ratio": bare_ratio})

    return measure


def keep_in_step(first: postgres.Cluster, second: postgres.Cluster) -> None:
    """Have each commit of a server wait until its standby has applied it, ``DELAY`` after it was made."""
    second.set("recovery_min_apply_delay", DELAY)
    first.set("synchronous_commit", "remote_apply")
    first.set("synchronous_standby_names", "*")
    with closing(psycopg2.connect(first.url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True  # a transaction sees one state of the replication

        def in_step() -> bool:
            cursor.execute(_IN_STEP)
            return bool(cursor.fetchone() == (1,))

        wait_until(in_step, "the standby is in step", FOLLOW_SECONDS)
