"""Every process of the broker tells of its health, of its writes to the journal, and whether it takes work."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypedDict

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.leadership import KnownBroker
from xbus.broker.metrics.families import Family, MetricKind, counter, gauge, one
from xbus.errors import Failed
from xbus.extras import installed_version
from xbus.rpc.server import Server
from xbus.supervision.alerts import Alerts
from xbus.supervision.health import Health

PREVENTING = ("journal_unavailable", "journal_unreadable", "journal_full")
"""The codes of problems with which the broker refuses work. Work that is parked or absent keeps nobody from working."""


class Reason(TypedDict):
    """A reason why a process is not ready."""

    code: str
    cause: str
    next_step: str


STARTING = Reason(code="starting", cause="the broker is starting", next_step="wait, and see its log")
STOPPING = Reason(code="stopping", cause="the broker is stopping", next_step="start it again")


class ProcessReadiness:
    """The readiness of a process, from its start to its end.

    Args:
        health: has the problems of the process.
        brokers: gives all brokers of the journal; none where one is alone on SQLite, or runs in parts.
        stands_by: gives the answer of a broker that stands by; None for one that leads.
    """

    def __init__(
        self,
        health: Health,
        brokers: Callable[[], Sequence[KnownBroker]] = tuple,
        stands_by: Callable[[], Failed] | None = None,
    ) -> None:
        self._health = health
        self.brokers = brokers
        self._stands_by = stands_by
        self._phase: Reason | None = STARTING if stands_by is None else None

    def started(self) -> None:
        """Note that calls are taken from now on."""
        self._phase = None

    def stopping(self) -> None:
        """Note that nothing new is taken any more."""
        self._phase = STOPPING

    def reasons(self) -> list[Reason]:
        """List why it is not ready; nothing if it is."""
        if self._stands_by is not None:
            failure = self._stands_by()
            return [Reason(code=failure.code, cause=failure.cause, next_step=failure.next_step)]
        preventing = [problem for problem in self._health.problems if problem.code in PREVENTING]
        return [
            *([] if self._phase is None else [self._phase]),
            *(Reason(code=each.code, cause=each.cause, next_step=each.next_step) for each in preventing),
        ]


def process_families(health: Health, readiness: ProcessReadiness) -> Iterator[Family]:
    """Show which program this is, and how it is."""
    build = {"version": installed_version(), "process": health.name}
    yield Family("xbus_build", MetricKind.INFO, "The program, and the part of the broker that it runs", [(build, 1)])
    yield gauge("xbus_ready", "1 if /readyz says yes", one(not readiness.reasons()))
    brokers = Counter(broker.does for broker in readiness.brokers()) or {"leads": 1}
    yield gauge("xbus_brokers", "Brokers of the journal", [({"does": does}, n) for does, n in brokers.items()])
    problems = Counter(problem.code for problem in health.problems)
    by_code = [({"code": code}, float(number)) for code, number in sorted(problems.items())]
    yield gauge("xbus_problems", "Problems of xbus health that last", by_code)


def write_families(journal: Journal) -> Iterator[Family]:
    """Show the writes of this process to the journal."""
    commits = journal.commits
    yield queue_bytes({"commit": journal.pending_bytes})
    limit = one(journal.max_pending_bytes)
    yield gauge("xbus_commit_queue_limit_bytes", "Bytes of the queue commit at which emitters have to wait", limit)
    yield gauge("xbus_journal_up", "1 unless the database can't be written", one(journal.outage is None))
    yield Family(
        "xbus_commit_seconds", MetricKind.HISTOGRAM, "Time of a group commit with its statements", [], commits.seconds
    )
    yield Family("xbus_commit_writes", MetricKind.HISTOGRAM, "Writes that share a group commit", [], commits.writes)
    yield counter("xbus_write_faults", "Writes, or whole groups of them, that failed", one(commits.faults))
    yield counter(
        "xbus_stored_bytes",
        "Bytes of items that this process has stored",
        one(journal.stored_bytes),
    )


def alert_families(alerts: Alerts) -> Iterator[Family]:
    """Show the alerts of this process."""
    samples = [({"channel": name, "result": result}, float(n)) for (name, result), n in sorted(alerts.counts.items())]
    yield counter("xbus_alerts", "Alerts of [alerts], by what came of them", samples)


def server_families(server: Server) -> Iterator[Family]:
    """Show the calls that wait for an answer, and those that were refused."""
    yield queue_bytes({f"{server.name}_calls": server.unanswered_bytes})
    by_code = [
        ({"server": server.name, "code": code}, float(number)) for code, number in sorted(server.refused.items())
    ]
    yield counter("xbus_refused_calls", "Calls that were answered with an error", by_code)


def queue_bytes(sizes: Mapping[str, int]) -> Family:
    """Show the bytes that wait in memory, by the name of the queue."""
    samples = [({"queue": name}, size) for name, size in sizes.items()]
    return gauge("xbus_queue_bytes", "Bytes that wait in memory", samples)
