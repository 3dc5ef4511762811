"""The journal in virtual time: its real statements and committer over a database in memory, without a thread.

The database may go away before a COMMIT, between a COMMIT and its answer, or for a while.
"""

import asyncio
import math
import sqlite3
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import cache
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.util import LRUCache

from xbus.broker.journal.commit.committer import UNDECIDED, Committer, Step, WriteJob
from xbus.broker.journal.commit.statements import News
from xbus.broker.journal.commit.writer import UNPROMISED_SECONDS
from xbus.broker.journal.database.engine import journal_errors
from xbus.broker.journal.writes import Append, Sealed, Write, WriteAnswer
from xbus.errors import Fenced, XbusError
from xbus.loop_turn import LoopTurn
from xbus.testing.images import opened
from xbus.testing.timing import Timing

T = TypeVar("T")

_Pending: TypeAlias = tuple[WriteJob, WriteAnswer[Any]]

ASK_AGAIN_SECONDS = 0.5
"""Seconds between two questions to a database that went away during a COMMIT, what became of it."""


@cache
def compiled_statements() -> LRUCache[object, object]:
    """Keep the statements of all databases: compiling takes longer than carrying out."""
    return LRUCache(1000)


class Database:
    """A database in memory that outlives every broker, and goes away on demand.

    Args:
        image: the bytes of the database to begin with; see ``images``.

    Attributes:
        is_away: whether it can't be reached.
    """

    def __init__(self, image: bytes) -> None:
        self.engine = opened(image)
        self.engine.update_execution_options(compiled_cache=compiled_statements())
        self.is_away = False
        self.commits_until_lost: int | None = None
        """After so many further commits the database goes away having committed, and before it says so."""
        commit: Callable[[Any], None] = self.engine.dialect.do_commit

        def do_commit(connection: Any) -> None:
            self._check()
            commit(connection)
            if self.commits_until_lost is not None:
                self.commits_until_lost -= 1
                if self.commits_until_lost < 0:
                    self.commits_until_lost = None
                    self.is_away = True
                    self._check()

        self.engine.dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]
        self.engine.dialect.do_begin = lambda connection: self._check()  # type: ignore[method-assign, assignment]

    def _check(self) -> None:
        if self.is_away:
            raise sqlite3.OperationalError("the database is away")

    @property
    def is_uncertain(self) -> bool:
        """Check whether it is away, or about to be."""
        return self.is_away or self.commits_until_lost is not None

    def read(self, statement: Callable[..., T], *args: Any) -> T:
        """Read, from outside of the virtual world; it takes none of its time."""
        with self.engine.connect() as connection, connection.begin():
            return statement(connection, *args)

    def write(self, statement: Callable[..., Any], *args: Any) -> None:
        """Change something as a command does that is run beside the broker."""
        if not self.is_away:
            with self.engine.connect() as connection, connection.begin():
                statement(connection, *args)

    def close(self) -> None:
        """Forget everything."""
        self.engine.dispose()


class VirtualJournal:
    """Stands in for ``journal.Journal``: the same answers in another time.

    Args:
        database: what is written to.
        timing: chooses the times that things take.
        max_segment_bytes: items that come one by one are gathered into segments of this size at the most.
    """

    has_room = True
    keeps_objects = False
    large_bytes: int | None = None

    def __init__(self, database: Database, timing: Timing, max_segment_bytes: int) -> None:
        self.turn = LoopTurn()
        self.lease_until = math.inf
        self.leads_until: Callable[[], float] = lambda: self.lease_until
        self._database = database
        self._timing = timing
        self._committer = Committer(database.engine, "broker", max_segment_bytes)
        self._pending: list[_Pending] = []
        self._undecided: list[_Pending] = []
        self._store_listeners: list[Callable[[Sequence[Append]], None]] = []
        self._seal_listeners: list[Callable[[Sequence[Sealed]], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._faults_known = 0
        self._is_dead = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context = copy_context()
        """That of the broker: others call it, and its process may be frozen."""

    def open(self) -> None:
        """Take over from the broker before, which wrote under the same name.

        Raises:
            JournalUnavailable: the database is away.
        """
        (answer,) = self._committer.do([WriteJob(self._committer.begin_epoch, 0)])
        if isinstance(answer, XbusError):
            raise answer

    def kill(self) -> None:
        """End as a process does that is killed: nothing more is written, and nobody is answered."""
        self._is_dead = True
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()

    def saw(self, end: object) -> None:
        """Do nothing: this database never goes back."""

    def on_room(self, listener: Callable[[], None]) -> None:
        """Do nothing: there is always room."""

    async def run(self, errand: Callable[..., T], /, *args: Any) -> T:
        """Run other work on the write connection, in its turn."""
        return await self._do(lambda connection: errand(connection, *args))

    async def step(self, row: int, errand: Callable[..., T], /, *args: Any) -> T:
        """Run work that locks one row on the write connection."""
        return await self._do(Step(row, lambda connection: errand(connection, *args)))

    async def _do(self, what: Step | Callable[[sa.Connection], T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enqueue(what, answer, self._timing.commit())
        return await answer

    def on_stored(self, listener: Callable[[Sequence[Append]], None]) -> None:
        """Have a listener told of what is stored."""
        self._store_listeners.append(listener)

    def on_sealed(self, listener: Callable[[Sequence[Sealed]], None]) -> None:
        """Have a listener told of what is sealed."""
        self._seal_listeners.append(listener)

    def write(self, write: Write[T], *, promises: bool = True, order: object = None) -> "asyncio.Future[T]":
        """Have something made durable, behind all that was written before."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(write, answer, promises=promises)
        return answer

    def submit(self, write: Write[T], answer: WriteAnswer[T], *, promises: bool = True, order: object = None) -> None:
        """Have something made durable as ``write`` does; ``answer`` gets the answer."""
        self._enqueue(write, answer, self._timing.commit() if promises else UNPROMISED_SECONDS)

    def hurry(self) -> None:
        """Wait no longer with what promises nothing."""
        if self._pending:
            self._commit_soon(0.0)

    def _enqueue(
        self, what: Write[T] | Step | Callable[[sa.Connection], T], answer: WriteAnswer[T], seconds: float
    ) -> None:
        if not self._is_dead:
            self._pending.append((WriteJob(what, self._faults_known), answer))
            self._commit_soon(seconds)

    async def read(self, statement: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run a read in a transaction of its own."""
        await asyncio.sleep(self._timing.read())
        with journal_errors(), self._database.engine.connect() as connection, connection.begin():
            return statement(connection, *args, **kwargs)

    async def ended(self) -> None:
        """Wait until another broker has taken over.

        Raises:
            Fenced: one has.
        """
        await self._ended

    def _commit_soon(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer.when() <= loop.time() + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._commit, context=self._context)

    def _commit(self) -> None:
        self._timer = None
        group, self._pending = self._pending, []
        try:
            if self._undecided:
                self._decide()
            answers = self._committer.do([call for call, _ in group])
        except Fenced as error:
            self.kill()
            self._ended.set_exception(error)
            self._ended.exception()  # maybe nobody waits yet: a broker that begins is fenced, too
            return
        self._undecided += [pending for pending, answer in zip(group, answers, strict=True) if answer is UNDECIDED]
        self._tell(group, answers)
        if self._undecided:
            self._commit_soon(ASK_AGAIN_SECONDS)

    def _decide(self) -> None:
        answers = self._committer.decide()
        if answers is not None:
            decided, self._undecided = self._undecided, []
            self._tell(decided, answers)

    def _tell(self, group: list[_Pending], answers: Sequence[object]) -> None:
        # In order, as the thread's answers come to the loop.
        told = (group, answers, self._committer.faults, self._committer.take_news())
        asyncio.get_running_loop().call_soon(self._answer, *told)

    def _answer(self, group: list[_Pending], answers: Sequence[object], faults: int, news: News) -> None:
        if self._is_dead:
            return
        self._faults_known = faults
        appends, sealed = news
        for tell_stored in self._store_listeners if appends else ():
            tell_stored(appends)
        for tell_sealed in self._seal_listeners if sealed else ():
            tell_sealed(sealed)
        for (_, waiting), answer in zip(group, answers, strict=True):
            if answer is UNDECIDED or waiting.done():
                continue
            if isinstance(answer, XbusError):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)
        self._committer.forget_faults(faults)
