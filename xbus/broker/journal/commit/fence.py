"""Keeps a process from writing to a journal that another one has taken over, or that lost what it had committed.

Each transaction of the write connection stamps the writer's row, by one guarded UPDATE. The UPDATE finds the row only
if the epoch is still this process's, and if the row has the last transaction that is known to be committed:

1. A commits group 7 on a database, which dies. 2. A standby with the groups up to 5 is promoted. 3. A begins group 8:
the row says 5, so the UPDATE finds nothing, and A ends before it gives a position anew.

The row may have a higher number than the last that is known: the answer to a COMMIT got lost.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal.commit.statements.rows import Driver, Prepared
from xbus.broker.journal.database.engine import driver_of
from xbus.errors import TakenOver, WentBack

RIVALS: Mapping[str, Sequence[str]] = {"broker": ("back", "front"), "front": ("broker",), "back": ("broker",)}
"""The writers that may not write beside one: its start ends them."""


class SeenEnd(NamedTuple):
    """The envelope at the end of the log, as this process has seen it.

    Args:
        envelope_id: None if nobody has read it.
    """

    position: int
    envelope_id: UUID | None


NOTHING_SEEN = SeenEnd(0, None)


class Seen:
    """The end of the log, as far as this process has seen it. Readers note it, and the fence asks for it."""

    def __init__(self) -> None:
        self.end = NOTHING_SEEN


class Fence:
    """Stamps the transactions of one writer. To be used in one thread.

    Args:
        name: the row of ``model.writer`` that is this writer's.
        seen: the end of the log that this process has seen.
        holder: names this process. Two that start on two states of a journal may get the same epoch.
    """

    def __init__(self, name: str, seen: Seen, holder: str) -> None:
        self._name = name
        self._seen = seen
        self._holder = holder
        self._epoch = 0
        self.committed = 0
        """The number of the last transaction that is known to be committed."""
        self._own: dict[str, Any] = {}
        """What the row of this writer has, as long as no other one takes over."""
        self.number = 0
        """The number of the last transaction that was stamped. None is used twice, also where a transaction fails:
        else it could speak for another one."""

    @property
    def has_begun(self) -> bool:
        """Check whether this writer has taken over."""
        return self._epoch > 0

    def name_session(self, connection: sa.Connection) -> None:
        """Have PostgreSQL show whose session it is, so that another writer can end it."""
        connection.execute(_NAME_SESSION, {"session_name": _session_name(self._name)})

    def take_over(self, connection: sa.Connection) -> None:
        """Take a new epoch: a process that still writes under the old one, or as a rival, can no more.

        On PostgreSQL this ends their sessions. A process that was stopped in the middle of a transaction holds locks,
        and would keep its successor waiting for as long as it is stopped.
        """
        # In the order of their names: two that start at once must not wait for each other.
        names = sorted((self._name, *RIVALS.get(self._name, ())))
        if connection.dialect.name == "postgresql":
            connection.execute(_END_SESSIONS, {"session_names": [_session_name(name) for name in names]})
        found = {row.name: row for row in connection.execute(_LOCK_WRITERS, {"names": names})}
        own = found.get(self._name)
        if own is None:
            self._epoch, self.number = 1, 0
            values = {"name": self._name, "epoch": self._epoch, "group_number": self.number}
            connection.execute(sa.insert(model.writer), values | {"holder": self._holder})
        else:
            self._epoch, self.number = own.epoch + 1, own.group_number
        connection.execute(_NEW_EPOCHS, {"names": list(found), "new_holder": self._holder})
        self._own = {"of_name": self._name, "of_epoch": self._epoch, "of_holder": self._holder}
        self.committed = self.number

    def stamp(self, driver: Driver, data_bytes: int = 0, *, is_first: bool = False) -> None:
        """Number the transaction, if this process may still write.

        Args:
            data_bytes: how much it stores.
            is_first: whether it is the first one of its connection. After a fail-over every connection is new, so the
                end of the log is compared, too: a back may have read what its own commits don't tell of.

        Raises:
            TakenOver: another process writes.
            WentBack: the journal lacks what was committed.
        """
        self.number += 1
        end = self._seen.end
        values = {"committed": self.committed, "number": self.number, "data_bytes": data_bytes, **self._own}
        if not is_first or end.envelope_id is None:
            cursor = _STAMP.execute(driver, values)
        else:
            cursor = _STAMP_FIRST.execute(driver, {**values, "seen": end.position, "seen_id": end.envelope_id.hex})
        if cursor.rowcount != 1:
            self._check(driver, _ROW_OF_WRITER.execute(driver, {"of_name": self._name}).fetchall())
            raise self._went_back(driver, self.committed)

    def look(self, connection: sa.Connection) -> None:
        """Check without writing whether this process may still write.

        Raises:
            TakenOver: as of ``stamp``.
            WentBack: as of ``stamp``.
        """
        self._check(driver_of(connection), connection.execute(_READ_WRITER, {"of_name": self._name}).all())

    def is_committed(self, connection: sa.Connection, number: int) -> bool:
        """Check whether a transaction was committed though its answer got lost.

        Args:
            number: of the transaction; no later one has been stamped.

        Raises:
            TakenOver: as of ``stamp``; what became of the transaction is not known then.
            WentBack: as of ``stamp``.
        """
        # Locked, so that a COMMIT that is still under way on the lost connection comes to its end first.
        rows = connection.execute(_LOCK_WRITER, {"of_name": self._name}).all()
        self._check(driver_of(connection), rows)
        return any(committed == number for _, _, committed in rows)

    def _check(self, driver: Driver, rows: Sequence[Any]) -> None:
        """Check what the row of this writer says, if there is one."""
        ((epoch, holder, committed),) = rows or [(0, None, 0)]
        if epoch < self._epoch:
            # Not even the beginning of this process is there.
            raise self._went_back(driver, committed)
        if (epoch, holder) != (self._epoch, self._holder):
            raise TakenOver(
                f"another broker writes to this journal now ({holder or 'unknown'})",
                "start this one again only if it is to take the journal over",
            )
        if committed < self.committed:
            raise self._went_back(driver, committed)

    def _went_back(self, driver: Driver, number: int) -> WentBack:
        ((found,),) = _READ_HEAD.execute(driver, {}).fetchall()
        return WentBack(self.committed - number, self._seen.end.position, found)


def _session_name(name: str) -> str:
    return f"xbus-writer-{name}"


def read_holder(connection: sa.Connection) -> str:
    """Read which process writes to the journal: its host, its id, and since when."""
    holders = connection.execute(sa.select(_WRITER.holder).where(_WRITER.holder.is_not(None)).order_by(_WRITER.name))
    return " and ".join(dict.fromkeys(holders.scalars())) or "unknown"


def this_holder(at: datetime) -> str:
    """Name this process, for the people who meet its lock."""
    return f"process {os.getpid()} on {socket.gethostname()} since {at.isoformat(timespec='milliseconds')}"


_NAME_SESSION = sa.select(sa.func.set_config("application_name", bindparam("session_name"), False))
_END_SESSIONS = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN :session_names "
    "AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
).bindparams(bindparam("session_names", expanding=True))
_WRITER = model.writer.c
_OF_WRITER = _WRITER.name == bindparam("of_name")
_NUMBERED = (
    sa.update(model.writer)
    .where(
        _OF_WRITER,
        _WRITER.epoch == bindparam("of_epoch"),
        _WRITER.holder == bindparam("of_holder"),
        _WRITER.group_number >= bindparam("committed"),
    )
    .values(
        group_number=bindparam("number"),
        stored_bytes=_WRITER.stored_bytes + bindparam("data_bytes", type_=sa.BigInteger),
    )
)
_STAMP = Prepared(_NUMBERED)
_OTHER_AT_END = sa.exists().where(
    model.envelope.c.position == bindparam("seen"), model.envelope.c.id != bindparam("seen_id", type_=sa.Uuid)
)
_STAMP_FIRST = Prepared(
    _NUMBERED.where(
        sa.select(model.head.c.position).scalar_subquery() >= bindparam("seen"),
        # The envelope itself may have been removed, so its absence says nothing.
        ~_OTHER_AT_END,
    )
)
_READ_WRITER = sa.select(_WRITER.epoch, _WRITER.holder, _WRITER.group_number).where(_OF_WRITER)
_ROW_OF_WRITER = Prepared(_READ_WRITER)
_LOCK_WRITER = _READ_WRITER.with_for_update()
_READ_HEAD = Prepared(sa.select(model.head.c.position))
_OF_WRITERS = _WRITER.name.in_(bindparam("names", expanding=True))
_LOCK_WRITERS = (
    sa.select(_WRITER.name, _WRITER.epoch, _WRITER.group_number)
    .where(_OF_WRITERS)
    .order_by(_WRITER.name)
    .with_for_update()
)
_NEW_EPOCHS = sa.update(model.writer).where(_OF_WRITERS).values(epoch=_WRITER.epoch + 1, holder=bindparam("new_holder"))
