"""The reader of a test: the SDK's own, over a bus in memory."""

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, TypeVar, Unpack
from uuid import UUID

from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.readers.settings import read_readers
from xbus.clock import Clock
from xbus.errors import Refused, TimedOut
from xbus.reader import AsyncLogView, AsyncReader, EventBatch, Reader, ReaderBatch
from xbus.reader.options import MOST_WAIT_SECONDS, ReaderKeywords
from xbus.reader.session import VerbCaller
from xbus.testing.journal import Database
from xbus.testing.pull.connection import ReadingConnection

T = TypeVar("T")

LATE_SECONDS = 1.0
"""Seconds by which the broker may be late with what the end of a lease frees."""

ADDRESS = "tcp://127.0.0.1:1"
"""Nobody calls it."""


@dataclass(frozen=True)
class VirtualReadingProgram:
    """A program of a reader.

    Args:
        id: that it gives itself.
        login: of a role of the reader.
        connection: to the back.
        clock: tells the virtual time.
        patience: seconds of virtual time after which nothing is left for it: the lease, and the wait for a batch.
    """

    id: UUID
    login: str
    connection: ReadingConnection
    clock: Clock
    patience: float


def open_reader(
    database: Database, name: str, connection: ReadingConnection, clock: Clock, program: UUID
) -> VirtualReadingProgram:
    """Make a program of a reader.

    Args:
        name: of the reader, or the login of a role of it.

    Raises:
        Refused: no reader is called so (``unknown_reader``).
    """
    readers = {entry.key: entry for entry in database.read(read_readers)}
    for role in database.read(read_catalog).reader_roles.values():
        if name in (role.login, role.shown_service) and role.service in readers:
            entry = readers[role.service]
            patience = entry.lease + entry.batch_wait + LATE_SECONDS
            return VirtualReadingProgram(program, role.login, connection, clock, patience)
    known = ", ".join(sorted(entry.name for entry in readers.values())) or "none"
    raise Refused(
        f"no reader with a role is called {name} (there are: {known})",
        'describe it first: bus.type("orders").read_by("billing"), or [[reader]] and [[role]] in the bus file',
        code="unknown_reader",
    )


class RunsCoroutines(Protocol):
    """Runs coroutines of a blocking caller in virtual time."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run one to its end."""


class _VirtualReader(AsyncReader):
    """The asynchronous reader, over a connection in virtual time."""

    def __init__(self, program: VirtualReadingProgram, **options: Unpack[ReaderKeywords]) -> None:
        super().__init__(ADDRESS, program.login, "none", clock=program.clock, program=program.id, **options)
        self._connection = program.connection

    def _connect(self, exit_stack: AsyncExitStack) -> VerbCaller:
        return self._connection


class InMemoryReader(Reader):
    """A reading program of a test, used as ``xbus.reader.Reader``; but it ends where nothing is left to read.

    Args:
        program: the program that it is.
        run: runs its calls.
        **options: as those of ``Reader``.
    """

    def __init__(self, program: VirtualReadingProgram, run: RunsCoroutines, **options: Unpack[ReaderKeywords]) -> None:
        self._reader = _VirtualReader(program, **options)
        self._program = program
        self._run = run
        self._has_crashed = False

    def __enter__(self) -> "InMemoryReader":
        self._run(self._reader.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._has_crashed:
            self._run(self._reader.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[ReaderBatch]:
        while (batch := self._next()) is not None:
            yield batch

    def next_batch(self) -> ReaderBatch:
        """Give the next batch, and note that the former one is done.

        Raises:
            TimedOut: nothing is left to read (``nothing_to_read``).
            Refused: as at ``Reader``.
        """
        batch = self._next()
        if batch is None:
            raise TimedOut(
                "nothing is left to read", "emit something first, or end what keeps the range", code="nothing_to_read"
            )
        return batch

    def at(
        self, start: str | datetime, *, types: Sequence[str] | None = None, follow: bool = False
    ) -> Iterator[EventBatch]:
        """Read the log from a place to its end, as ``Reader.at`` does; ``follow`` does not prolong it."""
        return super().at(start, types=types)

    def for_key(
        self, key: str, start: str | datetime = "oldest", *, types: Sequence[str] | None = None, follow: bool = False
    ) -> Iterator[EventBatch]:
        """Read the events of a key, as ``Reader.for_key`` does; it ends at the end of the log, as ``at``."""
        return super().for_key(key, start, types=types)

    def _batches(self, view: AsyncLogView) -> Iterator[EventBatch]:
        while (batch := self._run(view.next_batch())) is not None:
            yield batch

    def crash(self) -> None:
        """Die as by SIGKILL: nothing is settled or given up; the ranges are free when the lease is over."""
        self._has_crashed = True
        self._program.connection.kill()

    def _next(self) -> ReaderBatch | None:
        return self._run(self._poll())

    async def _poll(self) -> ReaderBatch | None:
        """Ask for as long as others may have what is left."""
        clock = self._program.clock
        until = clock.monotonic() + self._program.patience
        while (left := until - clock.monotonic()) > 0:
            if (batch := await self._reader.poll(min(left, MOST_WAIT_SECONDS))) is not None:
                return batch
        return None
