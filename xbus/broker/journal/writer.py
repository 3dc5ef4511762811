"""Group commit: one thread owns the write connection and commits all that arrived meanwhile in one transaction."""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal.database import check_durable, journal_errors
from xbus.broker.journal.statements import carry_out
from xbus.broker.journal.writes import Write, write_size
from xbus.errors import JournalError, JournalUnavailable, XbusError

log = logging.getLogger(__name__)


class Superseded(Exception):
    """Another process has begun to write to the journal under this writer's name: this process must stop."""


GROUP_BYTES = 16 * 1024 * 1024
"""A group is closed when it holds this much, so that a transaction, and with it an answer, stays short."""

GROUP_CALLS = 5_000

Errand: TypeAlias = Callable[[sa.Connection], Any]
"""Something else to do on the write connection, in a transaction of its own."""


@dataclass(slots=True)
class _Call:
    what: Write | Errand
    size: int
    answer: asyncio.Future[Any]
    outages_known: int
    """How many outages its caller could know of when it made the call."""


class Writer:
    """Takes writes from the event loop, makes them durable in a thread, and answers them on the loop.

    Args:
        engine: the journal's database.
        name: the row of ``model.writer`` that is this writer's.
        max_segment_bytes: appends are gathered up to this size.
        max_pending_bytes: with more than this not yet committed, ``has_room`` is false.
        on_room: called on the loop when ``has_room`` turns true again.
    """

    def __init__(
        self,
        engine: sa.Engine,
        name: str,
        *,
        max_segment_bytes: int,
        max_pending_bytes: int,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._max_segment_bytes = max_segment_bytes
        self._max_pending_bytes = max_pending_bytes
        self.on_room = on_room
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._pending_bytes = 0
        self._full = False
        self._connection: sa.Connection | None = None
        self._epoch = 0
        self._group_number = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self._outages = 0
        self._outages_told = 0

    async def start(self) -> None:
        """Take over this writer's row with a new epoch: a process that still writes under the old one must stop.

        Raises:
            ConfigurationError: the database does not make durable what it commits.
            JournalUnavailable: the database can't be reached.
        """
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=f"journal-{self._name}", daemon=True)
        self._thread.start()
        await self.run(self._begin_epoch)

    async def close(self) -> None:
        """Commit what was submitted, then end the thread."""
        if self._thread is None:
            return
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)
        self._thread = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def has_room(self) -> bool:
        """Whether more should be submitted; false means: let those who send wait."""
        return not self._full

    async def ended(self) -> None:
        """Wait until the thread has ended.

        Raises:
            Exception: what it died of; without it the broker must not go on.
        """
        assert self._ended is not None, "the writer is not started"
        await asyncio.shield(self._ended)

    def submit(self, write: Write) -> "asyncio.Future[Any]":
        """Have ``write`` made durable, behind all that was submitted before.

        Returns:
            A future of the call's answer (see ``carry_out``), done when the transaction is committed. It raises
            JournalUnavailable or JournalError, and then nothing of the call was kept.
        """
        return self._enqueue(write, write_size(write))

    def run(self, errand: Errand) -> "asyncio.Future[Any]":
        """Do something else on the write connection, in its turn and in a transaction of its own."""
        return self._enqueue(errand, 0)

    def _enqueue(self, what: Write | Errand, size: int) -> "asyncio.Future[Any]":
        assert self._loop is not None, "the writer is not started"
        if self._thread is None:
            raise JournalUnavailable("the journal is closed", "repeat the call when the broker is up again")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._pending_bytes += size
        self._full = self._full or self._pending_bytes > self._max_pending_bytes
        self._calls.put(_Call(what, size, answer, self._outages_told))
        return answer

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._loop is not None
        going_on = True
        try:
            while going_on:
                group, going_on = self._take()
                answers = self._carry_out(group)
                self._loop.call_soon_threadsafe(self._answer, group, answers, self._outages)
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._died, error)
        else:
            self._loop.call_soon_threadsafe(self._died, None)

    def _take(self) -> tuple[list[_Call], bool]:
        """Wait for a call, and take all others that are there; false says that the writer is being closed."""
        group: list[_Call] = []
        size = 0
        try:
            call = self._calls.get()
            while call is not None:
                group.append(call)
                size += call.size
                if size > GROUP_BYTES or len(group) == GROUP_CALLS:
                    return group, True
                call = self._calls.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _carry_out(self, calls: Sequence[_Call]) -> list[Any]:
        """Answers, or errors, for all calls, each kind of call in its turn."""
        answers: list[Any] = []
        for kind, run in groupby(calls, key=self._kind):
            match kind:
                case "errand":
                    answers += [self._do(cast(Errand, call.what)) for call in run]
                case "overtaken":
                    answers += [_overtaken() for _ in run]
                case _:
                    answers += self._commit([cast(Write, call.what) for call in run])
        return answers

    def _kind(self, call: _Call) -> Literal["errand", "overtaken", "write"]:
        if callable(call.what):
            return "errand"
        # Its caller did not know yet that a call before it failed, which it may build on.
        return "overtaken" if call.outages_known < self._outages else "write"

    def _do(self, errand: Errand) -> Any:
        try:
            with journal_errors(), self._connected().begin():
                return errand(self._connected())
        except XbusError as error:
            return error

    def _commit(self, group: Sequence[Write]) -> list[Any]:
        try:
            return self._transaction(group)
        except JournalUnavailable as error:
            self._outages += 1
            return [error] * len(group)
        except JournalError as error:
            if len(group) == 1:
                return [error]
        # One call is at fault: each in a transaction of its own, so that the others don't fail with it.
        return [self._commit([write])[0] for write in group]

    def _transaction(self, group: Sequence[Write]) -> list[Any]:
        number = self._group_number + 1
        answers = None
        try:
            with journal_errors(), self._connected().begin():
                answers = carry_out(self._connected(), group, self._max_segment_bytes)
                self._stamp(number)
        except JournalUnavailable:
            self._disconnect()
            if answers is None or not self._was_committed(number):
                raise
            log.warning("the connection was lost after a commit", extra={"action": "commit_confirmed", "group": number})
        self._group_number = number
        return answers

    def _stamp(self, number: int) -> None:
        """Number the group, unless another process has taken over: then this one may write no more."""
        stamped = self._connected().execute(_STAMP, {"of_name": self._name, "of_epoch": self._epoch, "number": number})
        if stamped.rowcount != 1:
            raise Superseded(f"another broker now writes to this journal as {self._name}")

    def _was_committed(self, number: int) -> bool:
        """Whether the last group's COMMIT took place although its confirmation got lost."""
        with journal_errors(), self._connected().begin():
            return bool(self._connected().execute(_READ_STAMP, {"of_name": self._name}).scalar_one() == number)

    def _begin_epoch(self, connection: sa.Connection) -> None:
        check_durable(connection)
        row = connection.execute(_READ_WRITER, {"of_name": self._name}).one_or_none()
        if row is None:
            self._epoch, self._group_number = 1, 0
            values = {"name": self._name, "epoch": self._epoch, "group_number": self._group_number}
            connection.execute(sa.insert(model.writer), values)
        else:
            self._epoch, self._group_number = row.epoch + 1, row.group_number
            connection.execute(_NEW_EPOCH, {"of_name": self._name, "new_epoch": self._epoch})

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- on the loop -----------------------------------------------------------------------------------------------

    def _answer(self, group: Sequence[_Call], answers: Sequence[Any], outages: int) -> None:
        self._outages_told = outages
        for call, answer in zip(group, answers, strict=True):
            self._pending_bytes -= call.size
            if call.answer.done():
                continue
            if isinstance(answer, XbusError):
                call.answer.set_exception(answer)
            else:
                call.answer.set_result(answer)
        if self._full and self._pending_bytes <= self._max_pending_bytes // 2:
            self._full = False
            self.on_room()

    def _died(self, error: BaseException | None) -> None:
        assert self._ended is not None
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)


def _overtaken() -> JournalUnavailable:
    return JournalUnavailable("a write before this one failed", "repeat both")


_OF_WRITER = model.writer.c.name == bindparam("of_name")
_STAMP = (
    sa.update(model.writer)
    .where(_OF_WRITER, model.writer.c.epoch == bindparam("of_epoch"))
    .values(group_number=bindparam("number"))
)
_READ_STAMP = sa.select(model.writer.c.group_number).where(_OF_WRITER)
_READ_WRITER = sa.select(model.writer.c.epoch, model.writer.c.group_number).where(_OF_WRITER)
_NEW_EPOCH = sa.update(model.writer).where(_OF_WRITER).values(epoch=bindparam("new_epoch"))
