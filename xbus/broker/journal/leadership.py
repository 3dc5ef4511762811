"""Decides which broker of a PostgreSQL journal leads, by a lease.

Only the clock of the database counts. A lease is about time alone: the epoch in the table ``writer`` keeps a broker
from writing that was frozen and wakes up. Nothing here waits for a standby of PostgreSQL: a commit that does so can't
cost a broker its lease.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.schema import check_connection
from xbus.errors import Refused

LEAD = "broker"
"""The name of the lease in the table: its holder leads."""

WHOLE = "broker"
"""The name of a broker that is not in parts, in the table of writers."""

GONE_SECONDS = 10.0
"""A broker that has not looked for so many seconds does not run."""

PROMISE_SECONDS = 3
"""A broker that is to lead next has so many seconds from its last look on. Then any other one may lead."""

_UNTIL = "clock_timestamp() + make_interval(secs => :seconds)"
_AT_ONCE = (
    "SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '2s';"
    " SET LOCAL idle_in_transaction_session_timeout = '2s'"
)
"""Transactions of the lease wait for nobody, not even for the disk. A process that is frozen keeps nobody waiting, nor
does a machine that is gone. A transaction that a crash of the database undoes is made again."""

_NOTE = sa.text(
    "INSERT INTO broker (name, front, back, version, process, settings, looked_at)"
    " VALUES (:name, :front, :back, :version, :process, :settings, clock_timestamp())"
    " ON CONFLICT (name) DO UPDATE SET front = excluded.front, back = excluded.back, version = excluded.version,"
    " process = excluded.process, settings = excluded.settings, looked_at = excluded.looked_at"
)
_FREE = "(lease.broker IS NULL OR lease.until < clock_timestamp())"
_NOT_PROMISED = (
    "(lease.successor IS NULL OR lease.successor = :name OR NOT EXISTS (SELECT FROM broker AS next"
    f" WHERE next.name = lease.successor AND next.looked_at > clock_timestamp() - interval '{PROMISE_SECONDS} s'))"
)
_TAKE = sa.text(
    "INSERT INTO lease (what, broker, epoch, until, since)"
    f" VALUES ('{LEAD}', :name, 1, {_UNTIL}, clock_timestamp())"
    " ON CONFLICT (what) DO UPDATE SET broker = excluded.broker, epoch = lease.epoch + 1, until = excluded.until,"
    " since = excluded.since, successor = NULL"
    f" WHERE :at_once OR {_FREE} AND {_NOT_PROMISED}"
    " RETURNING epoch"
)
_HELD = f"WHERE what = '{LEAD}' AND broker = :name AND epoch = :epoch"
_RENEW = sa.text(f"UPDATE lease SET until = {_UNTIL} {_HELD} RETURNING epoch")
_EPOCH = sa.text(f"SELECT epoch FROM lease WHERE what = '{LEAD}'")
_GIVE_BACK = sa.text(f"UPDATE lease SET broker = NULL, until = clock_timestamp() {_HELD}")
_HAND_OVER = sa.text(f"UPDATE lease SET successor = :name WHERE what = '{LEAD}'")
_FORGET = sa.text("DELETE FROM broker WHERE looked_at < clock_timestamp() - interval '1 day'")


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A broker among those of its journal.

    Args:
        name: its own.
        front: where emitters connect to.
        back: where recipients connect to.
        version: of its program.
        process: its id, its host, and since when it runs.
        settings: what all brokers of the journal must have in common, by name, in JSON.
    """

    name: str
    front: str
    back: str
    version: str
    process: str
    settings: str = "{}"


class KnownBroker(NamedTuple):
    """A broker as the journal knows it.

    Args:
        place: its name and addresses.
        looked: how many seconds ago it looked at the lease.
        epoch: of its lease; None where it does not lead.
        lasts: for how many seconds its lease lasts without being renewed; None where it does not lead.
        since: when it took its lease; None where it does not lead.
        successor: the name of the broker to which it is to hand its lease over; None where nobody asked for that.
        at: when it was looked up, by the database's clock.
    """

    place: BrokerPlace
    looked: float
    epoch: int | None
    lasts: float | None
    since: datetime | None
    successor: str | None
    at: datetime

    @property
    def leads(self) -> bool:
        """True where its lease is not over."""
        return self.lasts is not None and self.lasts > 0

    @property
    def is_gone(self) -> bool:
        """True where it has not looked for long, and so does not run."""
        return self.looked > GONE_SECONDS

    @property
    def does(self) -> str:
        """Say in words whether it leads, stands by, or is gone."""
        return "leads" if self.leads else "is gone" if self.is_gone else "stands by"

    def told(self) -> dict[str, str | float | bool | None]:
        """Tell of it in JSON; times are in seconds."""
        return {
            "broker": self.place.name,
            "leads": self.leads,
            "does": self.does,
            "since": None if self.since is None else self.since.isoformat(),
            "epoch": self.epoch,
            "lease_seconds": self.lasts,
            "looked_seconds": self.looked,
            "successor": self.successor,
            "front": self.place.front,
            "back": self.place.back,
            "version": self.place.version,
            "process": self.place.process,
        }


class JournalEnd(NamedTuple):
    """The end of a journal, as it was at a look.

    Args:
        epoch: of the whole broker that wrote last; 0 where none did.
        commits: its number of the last one.
        position: where the log ended.
    """

    epoch: int
    commits: int
    position: int

    def lacks(self, now: "JournalEnd") -> int | None:
        """Give the commits at the least that a journal has lost since this look; None where it has all.

        Args:
            now: how far it is written by now.
        """
        commits = self.commits - now.commits if self.epoch == now.epoch else 0
        is_shorter = now.epoch < self.epoch or now.position < self.position
        return max(commits, 0) if commits > 0 or is_shorter else None


class Looked(NamedTuple):
    """The lease as a broker found it.

    Args:
        epoch: by which this broker leads; None where it does not.
        brokers: all of the journal, the leader first.
        written: how far the journal is written.
    """

    epoch: int | None
    brokers: list[KnownBroker]
    written: JournalEnd

    @property
    def leader(self) -> BrokerPlace | None:
        """The broker that leads; None where a lease is over."""
        return _leader(self.brokers)


def take(connection: sa.Connection, broker: BrokerPlace, seconds: float, at_once: bool) -> Looked:
    """Note that a broker is there, and have it lead where nobody does, unless another one is to lead next.

    Args:
        broker: the one that looks.
        seconds: how long it leads without renewing that.
        at_once: whether it leads whoever does so now.

    Raises:
        SchemaError: nobody leads, and this program can't use the schema.
    """
    connection.exec_driver_sql(_AT_ONCE)
    connection.execute(_NOTE, asdict(broker))
    if not at_once and _leader(brokers := read_brokers(connection)) is not None:
        return Looked(None, brokers, read_written(connection))
    check_connection(connection)
    connection.execute(_FORGET)
    values = {"name": broker.name, "seconds": seconds, "at_once": at_once}
    epoch = connection.execute(_TAKE, values).scalar()
    return Looked(epoch, read_brokers(connection), read_written(connection))


def renew(connection: sa.Connection, broker: BrokerPlace, epoch: int, seconds: float) -> Looked:
    """Have a broker lead on, unless another one leads by now.

    Where the database went back to a state before its lease, as in a fail-over, it takes the lease again: the table
    ``writer`` tells whether it may write.
    """
    connection.exec_driver_sql(_AT_ONCE)
    connection.execute(_NOTE, asdict(broker))
    values = {"name": broker.name, "epoch": epoch, "seconds": seconds}
    if connection.execute(_RENEW, values).scalar() is not None:
        return Looked(epoch, read_brokers(connection), read_written(connection))
    if (connection.execute(_EPOCH).scalar() or 0) < epoch:
        return take(connection, broker, seconds, at_once=True)
    return Looked(None, read_brokers(connection), read_written(connection))


def hand_over(connection: sa.Connection, successor: BrokerPlace) -> None:
    """Have the leader end in order, and another broker lead next."""
    connection.exec_driver_sql(_AT_ONCE)
    connection.execute(_HAND_OVER, {"name": successor.name})


def find_successor(connection: sa.Connection, name: str | None) -> BrokerPlace:
    """Find a broker that may lead next.

    Args:
        name: of the broker that is to lead; None for any that stands by.

    Raises:
        Refused: nobody leads (``nobody_leads``), or that one does not stand by (``nobody_stands_by``).
    """
    brokers = read_brokers(connection)
    if _leader(brokers) is None:
        raise Refused("no broker leads this journal now", "see xbus broker list", code="nobody_leads")
    standing_by = [each.place for each in brokers if not each.leads and each.looked < PROMISE_SECONDS]
    successor = next((each for each in standing_by if name in (None, each.name)), None)
    if successor is None:
        who = "no broker stands by" if name is None else f"no broker {name} stands by"
        raise Refused(f"{who} to lead next", "see xbus broker list", code="nobody_stands_by")
    return successor


def give_back(connection: sa.Connection, broker: BrokerPlace, epoch: int) -> None:
    """End a lease, so that the next broker need not wait for its end."""
    connection.exec_driver_sql(_AT_ONCE)
    connection.execute(_GIVE_BACK, {"name": broker.name, "epoch": epoch})


def read_written(connection: sa.Connection) -> JournalEnd:
    """Read how far the journal is written."""
    writer, head = model.writer.c, model.head.c
    joined = model.head.outerjoin(model.writer, writer.name == WHOLE)
    found = sa.select(sa.func.coalesce(writer.epoch, 0), sa.func.coalesce(writer.group_number, 0), head.position)
    return JournalEnd(*connection.execute(found.select_from(joined)).one())


def read_brokers(connection: sa.Connection) -> list[KnownBroker]:
    """Read all brokers of the journal, the leader first."""
    broker, lease = model.broker.c, model.lease.c
    # The moment of the statement: that of its transaction may lie before the end of a lease.
    now = sa.func.now() if connection.dialect.name == "sqlite" else sa.func.clock_timestamp()
    rows = connection.execute(
        sa.select(broker.name, broker.front, broker.back, broker.version, broker.process, broker.settings)
        .add_columns(lease.epoch, lease.since, lease.successor)
        .add_columns(broker.looked_at, lease.until, sa.type_coerce(now, lease.until.type))
        .outerjoin(model.lease, sa.and_(lease.broker == broker.name, lease.what == LEAD))
        .order_by(lease.epoch.is_(None), broker.name)
    )
    return [
        KnownBroker(
            *(BrokerPlace(*place), _seconds(now, looked_at), epoch, until and _seconds(until, now), since, successor),
            now,
        )
        for *place, epoch, since, successor, looked_at, until, now in rows
    ]


def _seconds(later: datetime, earlier: datetime) -> float:
    return (later - earlier).total_seconds()


def _leader(brokers: Iterable[KnownBroker]) -> BrokerPlace | None:
    return next((known.place for known in brokers if known.leads), None)
