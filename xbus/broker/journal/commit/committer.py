"""Groups of calls made durable: in one transaction where all goes well, else call by call; no event loop.

A fence keeps a process from writing to a journal that another one has taken over, or that lost what it had committed.

Each transaction of the write connection stamps the writer's row, by one guarded UPDATE. The UPDATE finds the row only
if the epoch is still this process's, and if the row has the last transaction that is known to be committed:

1. A commits group 7 on a database, which dies. 2. A standby with the groups up to 5 is promoted. 3. A begins group 8:
the row says 5, so the UPDATE finds nothing, and A ends before it gives a position anew.

The row may have a higher number than the last that is known: the answer to a COMMIT got lost.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast
from uuid import UUID

import sqlalchemy as sa
from psycopg2.errors import DivisionByZero
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.counts import Histogram
from xbus.broker.journal.commit import statements
from xbus.broker.journal.commit.rehearsal import lacks_room, rehearse
from xbus.broker.journal.commit.statements.rows import Driver, Prepared
from xbus.broker.journal.database.engine import (
    READ_ONLY,
    WRITES,
    DriverTransaction,
    driver_of,
    is_memory,
    journal_error,
    journal_errors,
)
from xbus.broker.journal.database.postgres_session import PostgresSession, was_refused
from xbus.broker.journal.database.promises import check_durable
from xbus.broker.journal.writes import PutEnvelope, PutGroup, StartEvent, Write, write_size
from xbus.clock import SystemClock
from xbus.errors import (
    EnvelopeIdTaken,
    EventIdTaken,
    Fenced,
    JournalError,
    JournalUnavailable,
    TakenOver,
    WentBack,
    XbusError,
)

log = logging.getLogger(__name__)

SECONDS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds, in seconds, by which transactions are counted: from a fast disk to one that nobody can wait for."""

WRITES_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""The bounds by which transactions are counted that share a commit."""

Errand: TypeAlias = Callable[[sa.Connection], object]
"""Something else to do on the write connection, in a transaction of its own."""


@dataclass(frozen=True, slots=True)
class Step:
    """An errand that changes one row and what belongs to it. It shares its transaction with other steps.

    Args:
        row: the id of the row that it locks. Steps lock in the order of their ids, as people's commands do: else two of
            them could wait for each other.
        carry_out: does it, or refuses it.
    """

    row: int
    carry_out: Errand


class NotYet:
    """In the place of an answer: the database went away during the COMMIT, and nobody knows yet what became of it."""


UNDECIDED = NotYet()

_WHAT: Callable[["WriteJob"], Any] = attrgetter("what")


@dataclass(eq=False, slots=True)
class WriteJob:
    """Something to be done on the write connection.

    Args:
        what: a write, a step, or another errand.
        faults_known: how many faults its maker could know of.
    """

    what: Write[object] | Step | Errand
    faults_known: int


class Committer:
    """Owns the write connection. To be used in one thread.

    A call that was made before its maker could know that one before it failed might build on that: it is refused, and
    has to be made again. After an outage this holds for all calls, after the failure of a single call for those of the
    same envelope.

    Args:
        engine: the journal's database.
        name: the row of ``model.writer`` that is this committer's.
        max_segment_bytes: appends are gathered up to this size.
        seen: the end of the log that this process has seen.
    """

    def __init__(self, engine: sa.Engine, name: str, max_segment_bytes: int, seen: "Seen | None" = None) -> None:
        self._engine = engine
        self._fence = Fence(name, seen or Seen(), this_holder(SystemClock().now()))
        self._max_segment_bytes = max_segment_bytes
        self._connection: sa.Connection | None = None
        self._driver: Driver | None = None
        """The driver's connection of that."""
        self._is_new = True
        self._undecided: tuple[int, Sequence[WriteJob], Sequence[object], float, statements.Tally] | None = None
        """A group whose COMMIT was not answered: its number, its calls, and if it took place their answers, with the
        time at which it began and what it did."""
        self._lacked_bytes = 0
        self._last_outage = 0
        self._last_fault_of: dict[UUID, int] = {}
        self._taken_in: dict[UUID, EventIdTaken] = {}
        self.faults = 0
        """How many faults there have been; what a maker of calls knows once it has their answers."""
        self.outage: JournalUnavailable | None = None
        """Why the last try to write failed. None where it did not, or only as what was to be written was wrong."""
        self.seconds = Histogram(SECONDS_BOUNDS)
        """How long the transactions of groups took, with their commits."""
        self.group_sizes = Histogram(WRITES_BOUNDS)
        """How many writes these transactions held."""
        self.stored_bytes = 0
        """How much data was stored since it began, as far as that is known."""
        self._news: statements.News = [], []

    def begin_epoch(self, connection: sa.Connection) -> None:
        """Take over this committer's row: a process that still writes under the old epoch, or as a rival, can no more.

        Raises:
            ConfigurationError: the database does not make durable what it commits.
        """
        check_durable(connection)
        self._fence.take_over(connection)

    def take_news(self) -> statements.News:
        """Give the items stored and the envelopes sealed since it was asked last; see ``tally``."""
        news, self._news = self._news, ([], [])
        return news

    def do(self, calls: Sequence[WriteJob]) -> Sequence[object]:
        """Do all calls in order.

        Returns:
            For each call its answer, or the error with which it failed, or ``UNDECIDED``: see ``decide``.

        Raises:
            Fenced: this process may write no more.
        """
        if not calls:
            return ()
        group: list[Any] = [*map(_WHAT, calls)]
        for each in group:
            if not isinstance(each, Write):
                return self._do_mixed(calls)
        if self.faults > calls[0].faults_known and any(self._is_overtaken(call) for call in calls):
            return self._write_others(calls)
        if self._undecided is not None:
            self._note_outage(self.outage or _away(), 0)  # the database may be back for calls behind these
            return [_away()] * len(calls)
        try:
            try:
                return self._transaction(calls, group)
            except (EnvelopeIdTaken, EventIdTaken):
                if PutGroup not in (kinds := {*map(type, group)}) and (PutEnvelope not in kinds or len(group) == 1):
                    raise
            # Whose ids are taken is asked once, and all others stay together.
            told = zip(calls, self._transaction(calls, group, leaves_taken=True), strict=True)
            return [self._failed(call, each) if isinstance(each, JournalError) else each for call, each in told]
        except JournalUnavailable as error:
            self._note_outage(error, sum(map(write_size, group)))
            return [error] * len(calls)
        except Fenced:
            raise
        except Exception as error:
            if len(calls) == 1:
                return [self._failed(calls[0], error)]
        # A call is at fault. The half without it stays together, and so on.
        return [*self.do(calls[: len(calls) // 2]), *self.do(calls[len(calls) // 2 :])]

    def _do_mixed(self, calls: Sequence[WriteJob]) -> Sequence[object]:
        """Do calls among which are steps or errands."""
        answers: dict[WriteJob, object] = dict.fromkeys(calls)
        writes: list[WriteJob] = []
        steps: list[WriteJob] = []
        for call in calls:
            if isinstance(call.what, Step):
                steps.append(call)  # whoever makes a step waits for nothing that is written here
            elif isinstance(call.what, Write):
                writes.append(call)
            else:
                answers |= self._do_run(writes, steps)
                writes, steps = [], []
                answers[call] = self._do_errand(call.what)
        answers |= self._do_run(writes, steps)
        return [*answers.values()]

    def _do_run(self, writes: Sequence[WriteJob], steps: Sequence[WriteJob]) -> dict[WriteJob, object]:
        """Do the writes and steps between two errands."""
        done = dict(zip(writes, self.do(writes), strict=True))
        return done | self._do_steps(steps) if steps else done

    def _do_steps(self, calls: Sequence[WriteJob]) -> dict[WriteJob, object]:
        steps = {call: cast(Step, call.what) for call in sorted(calls, key=lambda call: cast(Step, call.what).row)}
        if len(steps) > 1:
            try:
                with self._stamped():
                    return {call: step.carry_out(self._connected()) for call, step in steps.items()}
            except Fenced:
                raise
            except JournalUnavailable as error:
                return dict.fromkeys(steps, error)
            except XbusError:  # one of them is refused: each alone, so that the others don't fail with it
                pass
        return {call: self._do_errand(step.carry_out) for call, step in steps.items()}

    def _do_errand(self, errand: Errand) -> object:
        try:
            with self._stamped():
                return errand(self._connected())
        except Fenced:
            raise
        except XbusError as error:
            return error

    @contextmanager
    def _stamped(self) -> Iterator[None]:
        """Commit what the block does beside the groups, if this process may still write.

        If the answer to its COMMIT gets lost, the caller is told that it failed. The next stamp takes either number.

        Raises:
            Fenced: it may not.
            JournalUnavailable: the database is away, or nobody knows yet what became of a group.
        """
        if self._undecided is not None:
            raise _away()
        try:
            with journal_errors(), self._connected().begin():
                yield
                self._fence.stamp(driver_of(self._connected()), is_first=self._is_new)
        except XbusError as error:
            if isinstance(error, JournalUnavailable):
                self.outage = error
            self.close()
            raise
        self._is_new = False
        self._confirm()

    def _write_others(self, calls: Sequence[WriteJob]) -> Sequence[object]:
        """Refuse the calls that may build on one that failed; the others are written together."""
        answers = {call: self._overtaken(call) if self._is_overtaken(call) else None for call in calls}
        others = [call for call, answer in answers.items() if answer is None]
        return [*(answers | dict(zip(others, self.do(others), strict=True))).values()]

    def _is_overtaken(self, call: WriteJob) -> bool:
        last_fault = self._last_fault_of.get(cast(UUID, getattr(call.what, "envelope_id", None)), 0)
        return call.faults_known < max(self._last_outage, last_fault)

    def _overtaken(self, call: WriteJob) -> JournalError:
        envelope_id = cast(UUID, getattr(call.what, "envelope_id", None))
        taken = self._taken_in.get(envelope_id)
        # The maker of a call behind this one may know of that failure, and can't know of this refusal.
        self._note_faults([call])
        if taken is not None:
            self._taken_in[envelope_id] = taken
            return EventIdTaken(taken.cause, taken.next_step)
        return JournalUnavailable("a write before this one failed", "repeat both")

    def _note_outage(self, error: JournalUnavailable, lacked_bytes: int) -> None:
        self.outage = error
        if lacks_room(error):
            self._lacked_bytes = max(self._lacked_bytes, lacked_bytes)
        self.faults += 1
        self._last_outage = self.faults
        self._last_fault_of.clear()
        self._taken_in.clear()

    def _note_faults(self, calls: Sequence[WriteJob]) -> None:
        self.faults += 1
        for call in calls:
            if (envelope_id := getattr(call.what, "envelope_id", None)) is not None:
                self._last_fault_of[envelope_id] = self.faults
                self._taken_in.pop(envelope_id, None)

    def _failed(self, call: WriteJob, error: Exception) -> JournalError:
        self._note_faults([call])
        if isinstance(error, EventIdTaken) and isinstance(call.what, StartEvent | PutEnvelope):
            self._taken_in[call.what.envelope_id] = error
        if isinstance(error, JournalError):
            return error
        log.error("a write died", exc_info=error, extra={"action": "write_died"})
        return JournalError(f"a fault in the broker ({error!r})", "see the broker's log")

    def _transaction(
        self, calls: Sequence[WriteJob], group: Sequence[Write[object]], *, leaves_taken: bool = False
    ) -> Sequence[object]:
        """Carry out all calls, and commit.

        Args:
            group: the writes of the calls.
            leaves_taken: whether the envelopes of groups are left out whose ids are taken.
        """
        began = time.monotonic()
        committing = False
        try:
            connection = self._connection or self._connected()
            driver = self._driver or driver_of(connection)
            is_past_sqlalchemy = not leaves_taken and statements.goes_past_sqlalchemy(group)
            transaction = DriverTransaction(connection, driver) if is_past_sqlalchemy else connection.begin()
            try:
                write = statements.carry_out_free if leaves_taken else statements.carry_out
                answers = write(connection, group, self._max_segment_bytes)
                done = statements.tally(group, answers)
                self._fence.stamp(driver, done[0], is_first=self._is_new)
                committing = True
                transaction.commit()
                self._is_new = False
            except DivisionByZero:
                transaction.rollback()
                self._fence.end(driver)
            except BaseException:
                transaction.rollback()
                raise
        except Exception as raised:
            error = journal_error(raised)
            try:
                if not isinstance(error, JournalUnavailable):
                    raise error from error.__cause__
                self.close()
                if not committing or was_refused(error.__cause__):
                    raise error from error.__cause__
                committed = self._was_committed(number := self._fence.number)
                if committed is None:
                    self._undecided = number, calls, answers, began, done
                    self._note_outage(error, done[0])
                    return [UNDECIDED] * len(calls)
                if not committed:
                    raise error from error.__cause__
            finally:
                # Its traceback refers to this frame, and the frame to the bytes of all calls.
                del error
        self._confirm(group)
        self._count(began, done)
        return answers

    def _count(self, began: float, done: statements.Tally) -> None:
        """Count a group that is committed, and keep its news."""
        data_bytes, count, appends, sealed = done
        self.stored_bytes += data_bytes
        self._news = [*self._news[0], *appends], [*self._news[1], *sealed]
        self.seconds.note(time.monotonic() - began)
        self.group_sizes.note(count)

    def _confirm(self, written: Sequence[Write[object]] = ()) -> None:
        self._fence.committed = self._fence.number
        # A full disk takes what is small, long after it refused what is large.
        if self._lacked_bytes == 0 or sum(map(write_size, written)) >= self._lacked_bytes:
            self.outage, self._lacked_bytes = None, 0

    def decide(self) -> Sequence[object] | None:
        """Find out what became of the COMMIT during which the database went away; until then nothing else is written.

        Returns:
            The answers that its calls get, in order; None while nobody can tell.
        """
        assert self._undecided is not None, "there is something to decide"
        number, calls, answers, began, done = self._undecided
        if (committed := self._was_committed(number)) is None:
            return None
        self._undecided = None
        if committed:
            self._fence.committed = number  # looks that failed have stamped, too
            self._count(began, done)
            return answers
        self._note_faults(calls)
        return [_away()] * len(calls)

    @property
    def is_short_of_room(self) -> bool:
        """True from the write that had no room until as much can be written."""
        return self._lacked_bytes > 0

    def try_to_write(self) -> None:
        """Commit what changes nothing, to see whether the database takes it, and has room for what it refused.

        Raises:
            Fenced: this process may write no more.
        """
        lacked_bytes = self._lacked_bytes
        if not isinstance(self._do_errand(lambda connection: rehearse(connection, lacked_bytes)), XbusError):
            self.outage, self._lacked_bytes = None, 0

    def look(self) -> None:
        """Look without writing whether this process may still write.

        Raises:
            Fenced: it may not.
        """
        # No other broker knows a journal in memory, and a look would end what its one connection is in the middle of.
        if not self._fence.has_begun or is_memory(self._engine):
            return
        try:
            with journal_errors():
                connection = self._connected()
                # A look must not wait for the writes of commands, nor keep them waiting.
                connection.execution_options(**READ_ONLY)
                with connection.begin():
                    self._fence.look(connection)
                connection.execution_options(**WRITES)
        except JournalUnavailable as error:
            self.outage = error
            self.close()

    def _was_committed(self, number: int) -> bool | None:
        """Check whether a group's COMMIT took place though its answer got lost; None while nobody can tell."""
        try:
            with journal_errors(), self._connected().begin():
                committed = self._fence.is_committed(self._connected(), number)
        except JournalUnavailable:
            self.close()
            return None
        if committed:
            log.warning("a commit was confirmed only on a second look", extra={"action": "commit_confirmed"})
        return committed

    def forget_faults(self, known: int) -> None:
        """Drop so many faults that the makers of all calls to come know of."""
        self._last_fault_of = {key: fault for key, fault in self._last_fault_of.items() if fault > known}
        self._taken_in = {key: taken for key, taken in self._taken_in.items() if key in self._last_fault_of}

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._driver = driver_of(self._connection)
            self._is_new = True
            if self._engine.dialect.name == "postgresql":
                with self._connection.begin():
                    self._fence.name_session(self._connection)
        return self._connection

    def close(self) -> None:
        """Give the connection up, for now or for good."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._driver = None


def _away() -> JournalUnavailable:
    return JournalUnavailable("the database is away", "see that it runs, then repeat the call")


# -- the fence -------------------------------------------------------------------------------------------------------

RIVALS: Mapping[str, Sequence[str]] = {"broker": ("back", "front"), "front": ("broker",), "back": ("broker",)}
"""The writers that may not write beside one: its start ends them."""


class SeenEnd(NamedTuple):
    """The envelope at the end of the log, as this process has seen it. Without an id nobody has read it."""

    position: int
    envelope_id: bytes | None


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
        """The values in the row of this writer, as long as no other one takes over."""
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
            new = sa.insert(model.writer).values(name=self._name, epoch=1, group_number=0, holder=self._holder)
            connection.execute(new)
        else:
            self._epoch, self.number = own.epoch + 1, own.group_number
        connection.execute(_NEW_EPOCHS, {"names": list(found), "new_holder": self._holder})
        self._own = {"of_name": self._name, "of_epoch": self._epoch, "of_holder": self._holder}
        self.committed = self.number

    def stamp(self, driver: Driver, data_bytes: int = 0, *, is_first: bool = False) -> None:
        """Number the transaction, if this process may still write.

        PostgreSQL looks whether it may in the message of the COMMIT: then that fails with ``DivisionByZero``.

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
        if is_first and end.envelope_id is not None:
            cursor = _STAMP_FIRST.execute(driver, {**values, "seen": end.position, "seen_id": end.envelope_id.hex()})
        elif isinstance(driver, PostgresSession) and driver.is_own and not driver.begins:
            if _GUARD_NAME not in driver.prepared:
                driver.cursor().execute(_PREPARE_GUARD)
                driver.prepared.add(_GUARD_NAME)
            driver.guard = _GUARD, [*map(values.__getitem__, _GUARD_VALUES)]
            return
        else:
            cursor = _STAMP.execute(driver, values)
        if cursor.rowcount != 1:
            self.end(driver)

    def end(self, driver: Driver) -> NoReturn:
        """Say why a stamp found no row.

        Raises:
            TakenOver: as of ``stamp``.
            WentBack: as of ``stamp``.
        """
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
        """Check whether a transaction was committed though its answer got lost. Once this is committed, it stays so.

        Args:
            number: of the transaction; only earlier looks for it were stamped later.

        Raises:
            TakenOver: as of ``stamp``; what became of the transaction is not known then.
            WentBack: as of ``stamp``.
        """
        # Locked, so that the lost session comes to its end first, if its stamp has arrived.
        self._check(driver_of(connection), rows := connection.execute(_LOCK_WRITER, {"of_name": self._name}).all())
        is_found: bool = rows[0].group_number == number
        if not is_found and connection.dialect.name == "postgresql":
            # A message of stamp and COMMIT may arrive later. Behind a newer number it finds no row.
            self.stamp(driver_of(connection))
        return is_found

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
        _WRITER.group_number < bindparam("number"),
    )
    .values(
        group_number=bindparam("number"),
        stored_bytes=_WRITER.stored_bytes + bindparam("data_bytes", type_=sa.BigInteger),
    )
)
_STAMP = Prepared(_NUMBERED)
_GUARD_NAME = "xbus_stamp"
_PREPARE_GUARD = f"""
PREPARE {_GUARD_NAME} (bigint, bigint, text, bigint, text, bigint) AS
    WITH own AS (
        UPDATE writer SET group_number = $1, stored_bytes = stored_bytes + $2
        WHERE name = $3 AND epoch = $4 AND holder = $5 AND group_number >= $6 AND group_number < $1 RETURNING name
    ) SELECT 1 / count(*) FROM own
"""
_GUARD_VALUES = ("number", "data_bytes", "of_name", "of_epoch", "of_holder", "committed")
_GUARD = f"EXECUTE {_GUARD_NAME} ({', '.join(['%s'] * len(_GUARD_VALUES))})"
"""The stamp as a statement that fails where it finds no row. Prepared, it costs the server a quarter less."""
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
_LOCK_WRITERS = sa.select(model.writer).where(_OF_WRITERS).order_by(_WRITER.name).with_for_update()
_NEW_EPOCHS = sa.update(model.writer).where(_OF_WRITERS).values(epoch=_WRITER.epoch + 1, holder=bindparam("new_holder"))
