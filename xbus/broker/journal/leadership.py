"""Decides which broker of a PostgreSQL journal leads, by a lease.

Only the clock of the database counts. A lease is about time alone: the epoch in the table ``writer`` keeps a broker
from writing that was frozen and wakes up. Nothing here waits for a standby of PostgreSQL: a commit that does so can't
cost a broker its lease.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from xbus import model

LEAD = "broker"
"""The name of the lease in the table: its holder leads."""

GONE_SECONDS = 10.0
"""A broker that has not looked for so many seconds does not run."""

_UNTIL = "clock_timestamp() + make_interval(secs => :seconds)"
_AT_ONCE = (
    "SET LOCAL synchronous_commit = local; SET LOCAL lock_timeout = '2s';"
    " SET LOCAL idle_in_transaction_session_timeout = '2s'"
)
"""For transactions that wait for nobody, and keep nobody waiting whose process is frozen or whose machine is gone."""

_NOTE = sa.text(
    "INSERT INTO broker (name, front, back, version, process, looked_at)"
    " VALUES (:name, :front, :back, :version, :process, clock_timestamp())"
    " ON CONFLICT (name) DO UPDATE SET front = excluded.front, back = excluded.back, version = excluded.version,"
    " process = excluded.process, looked_at = excluded.looked_at"
)
_TAKE = sa.text(
    f"INSERT INTO lease (what, broker, epoch, until) VALUES ('{LEAD}', :name, 1, {_UNTIL})"
    " ON CONFLICT (what) DO UPDATE SET broker = excluded.broker, epoch = lease.epoch + 1, until = excluded.until"
    " WHERE :at_once OR lease.broker IS NULL OR lease.until < clock_timestamp()"
    " RETURNING epoch"
)
_HELD = f"WHERE what = '{LEAD}' AND broker = :name AND epoch = :epoch"
_RENEW = sa.text(f"UPDATE lease SET until = {_UNTIL} {_HELD} RETURNING epoch")
_EPOCH = sa.text(f"SELECT epoch FROM lease WHERE what = '{LEAD}'")
_GIVE_BACK = sa.text(f"UPDATE lease SET broker = NULL, until = clock_timestamp() {_HELD}")
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
    """

    name: str
    front: str
    back: str
    version: str
    process: str


class KnownBroker(NamedTuple):
    """A broker as the journal knows it.

    Args:
        place: its name and addresses.
        looked: how many seconds ago it looked at the lease.
        epoch: of its lease; None where it does not lead.
        lasts: for how many seconds its lease lasts without being renewed; None where it does not lead.
    """

    place: BrokerPlace
    looked: float
    epoch: int | None
    lasts: float | None

    @property
    def leads(self) -> bool:
        """True where its lease is not over."""
        return self.lasts is not None and self.lasts > 0

    @property
    def is_gone(self) -> bool:
        """True where it has not looked for long, and so does not run."""
        return self.looked > GONE_SECONDS


class Looked(NamedTuple):
    """The lease as a broker found it.

    Args:
        epoch: by which this broker leads; None where it does not.
        leader: the broker that leads in its place.
    """

    epoch: int | None
    leader: BrokerPlace | None


def take(connection: sa.Connection, broker: BrokerPlace, seconds: float, at_once: bool) -> Looked:
    """Note that a broker is there, and have it lead where nobody does.

    Args:
        broker: the one that looks.
        seconds: how long it leads without renewing that.
        at_once: whether it leads whoever does so now.
    """
    connection.exec_driver_sql(_AT_ONCE)
    connection.execute(_NOTE, asdict(broker))
    leader = None if at_once else _leader(connection)
    if leader is not None:
        return Looked(None, leader)
    connection.execute(_FORGET)
    values = {"name": broker.name, "seconds": seconds, "at_once": at_once}
    epoch = connection.execute(_TAKE, values).scalar()
    return Looked(epoch, _leader(connection) if epoch is None else None)


def renew(connection: sa.Connection, broker: BrokerPlace, epoch: int, seconds: float) -> Looked:
    """Have a broker lead on, unless another one leads by now.

    Where the database went back to a state before its lease, as in a fail-over, it takes the lease again: the table
    ``writer`` tells whether it may write.
    """
    connection.exec_driver_sql(_AT_ONCE)
    connection.execute(_NOTE, asdict(broker))
    values = {"name": broker.name, "epoch": epoch, "seconds": seconds}
    if connection.execute(_RENEW, values).scalar() is not None:
        return Looked(epoch, None)
    if (connection.execute(_EPOCH).scalar() or 0) < epoch:
        return take(connection, broker, seconds, at_once=True)
    return Looked(None, _leader(connection))


def give_back(connection: sa.Connection, broker: BrokerPlace, epoch: int) -> None:
    """End a lease, so that the next broker need not wait for its end."""
    connection.exec_driver_sql(_AT_ONCE)
    connection.execute(_GIVE_BACK, {"name": broker.name, "epoch": epoch})


def read_brokers(connection: sa.Connection) -> list[KnownBroker]:
    """Read all brokers of the journal, the leader first."""
    broker, lease = model.broker.c, model.lease.c
    # The moment of the statement: that of its transaction may lie before the end of a lease.
    now = sa.func.now() if connection.dialect.name == "sqlite" else sa.func.clock_timestamp()
    rows = connection.execute(
        sa.select(broker.name, broker.front, broker.back, broker.version, broker.process)
        .add_columns(broker.looked_at, lease.epoch, lease.until, sa.type_coerce(now, lease.until.type))
        .outerjoin(model.lease, sa.and_(lease.broker == broker.name, lease.what == LEAD))
        .order_by(lease.epoch.is_(None), broker.name)
    )
    return [
        KnownBroker(BrokerPlace(*place), _seconds(now, looked_at), epoch, until and _seconds(until, now))
        for *place, looked_at, epoch, until, now in rows
    ]


def _seconds(later: datetime, earlier: datetime) -> float:
    return (later - earlier).total_seconds()


def _leader(connection: sa.Connection) -> BrokerPlace | None:
    return next((known.place for known in read_brokers(connection) if known.leads), None)
