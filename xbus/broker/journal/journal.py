"""The journal: the only place where front and back meet.

Writes go through one thread that commits in groups (``commit.writer``); reads go through a few threads with a
connection each. Nothing here blocks the event loop, and no driver's error comes out.
"""

import asyncio
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa

from xbus.broker.journal.commit.committer import Seen, SeenEnd, read_holder
from xbus.broker.journal.commit.writer import LOOK_SECONDS, CommitFigures, Writer, WriterPace, silent
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.database.connection import ReadTurns
from xbus.broker.journal.database.engine import READ_ONLY, create_engine, find_by_index, is_memory, journal_errors
from xbus.broker.journal.database.holding import hold, write_back
from xbus.broker.journal.database.promises import check_sessions, warn_of_standby
from xbus.broker.journal.objects.claiming import claim, whole_place
from xbus.broker.journal.objects.opening import open_store
from xbus.broker.journal.objects.stowing import NO_ORDER, ObjectPlace, Order, Stowing
from xbus.broker.journal.writes import Append, Sealed, Write, WriteAnswer
from xbus.calling import CALLING
from xbus.clock import SystemClock
from xbus.config import JournalSettings
from xbus.errors import ConfigurationError, JournalError, JournalUnavailable
from xbus.loop_turn import LoopTurn

READERS = 2

ASK_AGAIN_SECONDS = 0.5
"""Seconds between two questions about a COMMIT during which the database went away. Fewer answer callers sooner."""

_READER = {**READ_ONLY, "postgresql_readonly": True}
"""Execution options of the readers: PostgreSQL refuses their writes, as no fence stamps them."""

_DEFAULTS = JournalSettings()

P = ParamSpec("P")
T = TypeVar("T")


class Submit(Protocol):
    """Has something made durable as ``Journal.write`` does."""

    def __call__(
        self, write: Write[T], answer: WriteAnswer[T], *, promises: bool = True, order: Order = NO_ORDER
    ) -> None:
        """Take a write.

        Args:
            answer: gets the answer, in the turn of the loop in which the broker learns of the commit.
            promises: as of ``Journal.write``.
            order: as of ``Journal.write``.
        """


class Journal:
    """The database with all durable data.

    Args:
        engine: the database, with its schema set up.
        name: which part of the broker writes: ``front``, ``back``, or ``broker`` for both in one process. Two processes
            never write under the same name.
        max_segment_bytes: what arrives item by item is gathered into segments of this size at the most.
        max_pending_bytes: with more than this not yet committed, ``has_room`` is false.
        answer_seconds: how long an answer of the database is waited for.
        ask_again_seconds: between two questions to a database that went away during a COMMIT, what became of it.
        look_seconds: between two looks of an idle writer whether another broker has taken over.
        objects: where the data of large writes goes; None for the database.

    Attributes:
        turn: of the loop: writes are handed over at its end.

    Example:
        >>> journal = Journal(create_engine("sqlite:///xbus.db"), "broker")     # doctest: +SKIP
        >>> async with journal:                                                  # doctest: +SKIP
        ...     receipt = await journal.write(Seal(envelope_id, clock.now()))
        ...     head = await journal.read(read_head)
    """

    def __init__(
        self,
        engine: sa.Engine,
        name: str,
        *,
        max_segment_bytes: int = _DEFAULTS.max_segment_bytes,
        max_pending_bytes: int = _DEFAULTS.max_pending_bytes,
        answer_seconds: float = _DEFAULTS.answer_timeout,
        ask_again_seconds: float = ASK_AGAIN_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        objects: ObjectPlace | None = None,
    ) -> None:
        self.name = name
        self.answer_seconds = answer_seconds
        find_by_index(engine)
        self._engine = engine
        self._seen = Seen()
        self.turn = LoopTurn()
        self._writer = Writer(
            engine,
            name,
            max_segment_bytes=max_segment_bytes,
            max_pending_bytes=max_pending_bytes,
            pace=WriterPace(answer_seconds, ask_again_seconds, look_seconds),
            seen=self._seen,
            turn=self.turn,
        )
        self.submit: Submit = self._writer.submit
        """Has something made durable as ``write`` does."""
        self._hold: int | None = None
        self._objects = objects
        self.keeps_objects = objects is not None
        """Whether the data of large writes goes to an object store."""
        self._stowing: Stowing | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._reader_connections: dict[int, sa.Connection] = {}
        self._read_turns = ReadTurns(READERS)
        self._closed = False
        self._damage_listeners: list[Callable[[JournalError], None]] = []
        self.leads_until: Callable[[], float] = lambda: math.inf
        """When another process may begin to hand this journal's data out, on the loop's clock."""

    @classmethod
    def open(cls, url: str, name: str, **options: Any) -> "Journal":
        """Open a journal in the database at an SQLAlchemy URL, with the options of the class.

        Raises:
            ConfigurationError: the URL can't be used.
        """
        return cls(create_engine(url), name, **options)

    async def __aenter__(self) -> "Journal":
        self._hold = await asyncio.to_thread(hold, self._engine, self._holder)
        try:
            stowing = await self._take_over()
        except BaseException:
            self._let_go()
            raise
        if stowing is not None:
            self._stowing, self.submit = stowing, stowing.submit
        # A database in memory is one connection, the writer's.
        if not is_memory(self._engine):
            self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="journal-reader")
        return self

    async def _take_over(self) -> Stowing | None:
        """Check the database, and begin to write under a new epoch."""
        if self._engine.dialect.name == "postgresql":
            await asyncio.to_thread(check_sessions, self._engine)
            await asyncio.to_thread(warn_of_standby, self._engine)
        stowing = None if self._objects is None else await self._open_store(self._objects)
        await self._writer.start()
        if self._hold is not None:
            await asyncio.to_thread(write_back, self._engine)
        return stowing

    async def _open_store(self, objects: ObjectPlace) -> Stowing:
        if is_memory(self._engine):
            raise ConfigurationError("a journal in memory keeps no objects", "leave [journal] objects empty")
        store_id = await asyncio.to_thread(claim, self._engine, objects.place, SystemClock().now())
        store = await asyncio.to_thread(open_store, whole_place(objects.place))
        return Stowing(store, store_id, objects.large_bytes, self.answer_seconds, self._writer)

    async def __aexit__(self, *exception: object) -> None:
        self._closed = True
        if self._stowing is not None:
            await self._stowing.close()
        await self._writer.close()
        if self._readers is not None:
            await asyncio.to_thread(self._readers.shutdown)
        for connection in self._reader_connections.values():
            connection.close()
        self._let_go()

    def _let_go(self) -> None:
        """Close the connections, then the descriptor that holds the file: in the other order SQLite loses its locks."""
        self._engine.dispose()
        # A thread that hangs may still have a connection: then the end of the process gives the file free.
        if self._hold is not None and self._writer.has_ended:
            os.close(self._hold)
            self._hold = None

    def _holder(self) -> str:
        """Read who writes to the journal now."""
        with journal_errors(), self._engine.connect().execution_options(**READ_ONLY) as connection, connection.begin():
            holder = read_holder(connection)
        self._engine.dispose()
        return holder

    def write(self, write: Write[T], *, promises: bool = True, order: Order = NO_ORDER) -> "asyncio.Future[T]":
        """Have something made durable, behind all of its lane that was written before; without objects, behind all.

        Args:
            promises: false where nobody waits for it: then it waits a moment for a write that promises something.
            order: its place among the writes of its maker.

        Returns:
            A future of the write's answer, done when the write is durable. It raises JournalUnavailable where the
            database can't do it now and JournalError where it never will; then nothing of the call was kept.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(write, answer, promises=promises, order=order)
        return answer

    def hurry(self) -> None:
        """Wait no longer with what promises nothing."""
        self._writer.hurry()

    async def read(
        self, statement: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a read, such as those of the package ``log``, in a read transaction of its own.

        Raises:
            JournalUnavailable: the database can't be read now.
        """

        def errand(connection: sa.Connection) -> T:
            return statement(connection, *args, **kwargs)

        try:
            return await self._in_a_thread(errand)
        except JournalError as error:
            if error.code == DAMAGED:
                self.tell_damage(error)
            raise

    def on_damage(self, listener: Callable[[JournalError], None]) -> None:
        """Have ``listener`` called whenever a read met items that do not have their hash."""
        self._damage_listeners.append(listener)

    def tell_damage(self, error: JournalError) -> None:
        """Tell the listeners of damage, also where a program met it that reads the journal past the broker."""
        for listener in self._damage_listeners:
            listener(error)

    async def _in_a_thread(self, errand: Callable[[sa.Connection], T]) -> T:
        if self._readers is None:
            return await self._writer.run(errand)
        if self._closed:
            raise JournalUnavailable("the journal is closed", "repeat the call when the broker runs")
        try:
            async with asyncio.timeout(self.answer_seconds), self._read_turns.turn(CALLING.get()):
                return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, errand)
        except TimeoutError:
            raise silent(self.answer_seconds) from None

    def _read(self, errand: Callable[[sa.Connection], T]) -> T:
        thread = threading.get_ident()
        with journal_errors():
            connection = self._reader_connections.get(thread)
            if connection is None:
                connection = self._engine.connect().execution_options(**_READER)
                self._reader_connections[thread] = connection
            try:
                with connection.begin():
                    return errand(connection)
            except BaseException:
                # It may be broken: the next read asks the pool, which knows.
                del self._reader_connections[thread]
                connection.close()
                raise

    @property
    def large_bytes(self) -> int | None:
        """The size from which on the data of a write goes to an object store; None without one."""
        return None if self._objects is None else self._objects.large_bytes

    @property
    def outage(self) -> JournalUnavailable | None:
        """The error of every write now; None while all goes well, as far as it was tried."""
        return self._writer.outage

    @property
    def overdue(self) -> JournalUnavailable | None:
        """The error for calls that have waited for ``answer_seconds``; None if they may wait longer."""
        return self._writer.overdue

    @property
    def writer_thread(self) -> int:
        """The id by which the system knows the thread that writes; the journal must have begun."""
        return self._writer.thread_id

    @property
    def written(self) -> tuple[int, int]:
        """The bytes of items that this process has stored since it began, and the number of its commits."""
        return self._writer.stored_bytes, sum(self._writer.commits.seconds.counts)

    @property
    def has_room(self) -> bool:
        """True while more should be written; false while too much waits for its commit, so let senders wait."""
        return self._writer.has_room

    @property
    def pending_bytes(self) -> int:
        """The bytes that wait for their commit."""
        return self._writer.pending_bytes

    @property
    def commits(self) -> CommitFigures:
        """The counts of the group commits."""
        return self._writer.commits

    @property
    def max_pending_bytes(self) -> int:
        """The bytes that may wait for their commit before ``has_room`` is false."""
        return self._writer.max_pending_bytes

    @property
    def stored_bytes(self) -> int:
        """The bytes of items that this process has stored since it began, as far as it knows."""
        return self._writer.stored_bytes

    async def run(self, errand: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run other work on the write connection, in its turn and in a transaction of its own.

        Raises:
            JournalUnavailable: the database can't do it now; nothing was kept, unless that broke off its COMMIT.
        """
        return await self._writer.run(lambda connection: errand(connection, *args, **kwargs))

    async def step(
        self, row: int, errand: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run work that locks one row on the write connection, in a transaction that it shares with other such work.

        Args:
            row: the id of the row.

        Raises:
            JournalUnavailable: as of :meth:`run`.
        """
        return await self._writer.step(row, lambda connection: errand(connection, *args, **kwargs))

    def saw(self, end: SeenEnd) -> None:
        """Note how far the log was read: a journal whose log ends before that, or otherwise, went back."""
        self._seen.end = end

    def on_room(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called whenever ``has_room`` turns true again."""
        self._writer.room_listeners.append(listener)

    def on_stored(self, listener: Callable[[Sequence[Append]], None]) -> None:
        """Have ``listener`` called after each commit that stored items of envelopes that come in parts.

        It is called before the envelopes that the commit sealed are known as sealed.
        """
        self._writer.append_listeners.append(listener)

    def on_sealed(self, listener: Callable[[Sequence[Sealed]], None]) -> None:
        """Have ``listener`` called after each commit that sealed envelopes, when their emitters have been answered.

        Nothing that an answer leads to is carried out before. It gets the envelopes of one commit, in position order.
        It misses envelopes that other programs seal, such as commands.
        """
        self._writer.seal_listeners.append(listener)

    async def ended(self) -> None:
        """Wait until the journal is closed, or raise what its writer died of: then the broker must stop."""
        await self._writer.ended()
