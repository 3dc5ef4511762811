"""All readers of the bus: finds the one of a caller, and follows the configuration."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from xbus.broker.back.log import LogSlices
from xbus.broker.back.readers.calls import BatchCall, ReadingProgram, Settlement
from xbus.broker.back.readers.desk import ReaderDesk
from xbus.broker.back.readers.failing import FailingBatches, NextAttempt
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import RunnerEntry
from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.broker.journal.readers.parked import BatchFailure
from xbus.broker.journal.readers.settings import ReaderEntry, read_readers
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.config import BackSettings
from xbus.errors import JournalUnavailable, Refused
from xbus.periodic import every
from xbus.rpc.messages import BatchAnswer, ClaimedBatchMap, RangesAnswer

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between looks at leases. Less gives the ranges of a dead program away sooner."""


class ReaderDesks:
    """The readers in use.

    Args:
        journal: keeps their ranges.
        slices: reads the log.
        runtime: its time and its tasks.
        settings: when subscribers are called again that have not taken a batch.
        catalog: the configuration as it is now.
    """

    def __init__(
        self,
        journal: Journal,
        slices: LogSlices,
        runtime: Runtime,
        settings: BackSettings,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._journal = journal
        self._slices = slices
        self._runtime = runtime
        self._settings = settings
        self._catalog = catalog
        self._desks: dict[str, ReaderDesk] = {}
        self._following = asyncio.Lock()
        self._changed = asyncio.Condition()
        self.changes = 0
        """Grows whenever the configuration has been followed."""

    async def follow(self) -> None:
        """Take up readers, settings and ranges as the configuration has them now.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        async with self._following:
            entries = {entry.key: entry for entry in await self._journal.read(read_readers)}
            for key in self._desks.keys() - entries.keys():
                self._desks.pop(key).calls.wake()
            for key, entry in entries.items():
                if key not in self._desks:
                    self._desks[key] = self._open(entry)
                await self._desks[key].follow(entry)
        async with self._changed:
            self.changes += 1
            self._changed.notify_all()

    async def beyond(self, changes: int, seconds: float) -> None:
        """Wait until the configuration has been followed once more, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.changes != changes)

    def _open(self, entry: ReaderEntry) -> ReaderDesk:
        clock = self._runtime.clock
        failing = FailingBatches(self._settings, clock, self._runtime.random)
        return ReaderDesk(entry, self._journal, self._slices, clock, failing)

    async def follow_when_possible(self) -> None:
        """Follow the configuration as soon as the database can be read."""
        while True:
            try:
                return await self.follow()
            except JournalUnavailable as error:
                log.warning("readers not read: %s", error, extra={"action": "readers_unread"})
                await asyncio.sleep(self._runtime.intervals.retry)

    async def watch(self) -> None:
        """For ever: free what silent programs had, and write down how far ranges have come into which nothing falls."""
        await every(LOOK_SECONDS, self._look)

    async def _look(self) -> None:
        for desk in self._desks.values():
            try:
                await desk.look()
            except JournalUnavailable as error:
                log.info("ranges not written: %s", error, extra={"action": "ranges_unwritten"})

    async def read(self, program: ReadingProgram, call: BatchCall) -> BatchAnswer:
        """See :meth:`ReaderDesk.read`; a paused reader or role gets nothing but a word about that."""
        desk = self._desk(program)
        answer = await desk.read(program, call, lambda: self._gets_nothing(desk, program))
        pause = self._pause_of(desk, program)
        if answer["batch"] is None and pause is not None:
            answer["paused"] = pause.told
        return answer

    async def settle(self, program: ReadingProgram, done: Settlement) -> float:
        """See :meth:`ReaderDesk.settle`; returns the lease in seconds."""
        desk = self._desk(program)
        await desk.settle(program, done)
        return desk.entry.lease

    async def fail(self, program: ReadingProgram, failed: Settlement, failure: BatchFailure) -> NextAttempt | None:
        """See :meth:`ReaderDesk.fail`."""
        return await self._desk(program).fail(program, failed, failure)

    def renew(self, program: ReadingProgram) -> RangesAnswer:
        """See :meth:`ReaderDesk.renew`."""
        return self._desk(program).renew(program)

    async def leave(self, program: ReadingProgram) -> None:
        """See :meth:`ReaderDesk.leave`."""
        await self._desk(program).leave(program)

    def unheard(self, batch: ClaimedBatchMap) -> None:
        """Take note that a batch did not reach its program, as the connection was lost."""
        for desk in self._desks.values():
            desk.unheard(batch["range"], batch["counter"])

    def absent_names(self) -> set[str]:
        """The names of the readers of which no program gives a sign of life."""
        return {desk.entry.name for desk in self._desks.values() if not any(True for _ in desk.sharing.programs)}

    def desk(self, key: str) -> ReaderDesk | None:
        """Give a reader; None until the configuration has been followed."""
        return self._desks.get(key)

    def program(self, role_id: int | None, program: UUID, reader: str) -> ReadingProgram:
        """Say which program calls.

        Args:
            reader: the name of the reader whose role it has to be, empty for any; of a gateway the key of the reader of
                a subscription.

        Raises:
            Refused: the role is not a reader's (``not_a_reader``), or another one's (``reader_not_allowed``).
        """
        gateway = None if role_id is None else self._catalog().runners.get(role_id)
        if reader and gateway is not None and gateway.is_gateway:
            return ReadingProgram(program, role_id, gateway.login, reader)
        role = self._role(role_id)
        found = ReadingProgram(program, role_id, role.login)
        if reader and self._desk(found).entry.name != reader:
            raise Refused(
                f"the role {role.login} does not read for {reader!r:.100}",
                f"name its reader, {self._desk(found).entry.name}, or call by a role of the other one",
                code="reader_not_allowed",
            )
        return found

    def gateway(self, role_id: int | None) -> RunnerEntry:
        """Give the role of a gateway.

        Raises:
            Refused: it is another one (``not_a_gateway``).
        """
        role = None if role_id is None else self._catalog().runners.get(role_id)
        if role is None or not role.is_gateway:
            raise Refused(
                "the role is not a gateway's",
                "make a service of kind gateway in the bus file, and a role of it",
                code="not_a_gateway",
            )
        return role

    def _role(self, role_id: int | None) -> RoleEntry:
        role = None if role_id is None else self._catalog().reader_roles.get(role_id)
        if role is None:
            raise Refused(
                "the role is not a reader's",
                "make a reader by [[reader]], and a role with its name as service, in the bus file",
                code="not_a_reader",
            )
        return role

    def _desk(self, program: ReadingProgram) -> ReaderDesk:
        desk = self._desks.get(program.reader or self._role(program.role_id).service)
        if desk is None or (program.reader and not desk.entry.is_called):
            raise Refused("the reader has been made just now", "ask again in a second", code="reader_not_ready")
        return desk

    def _gets_nothing(self, desk: ReaderDesk, program: ReadingProgram) -> bool:
        """Check whether a program is paused, or its role or its reader was removed."""
        role = self._known_role(program)
        reader = role.service if isinstance(role, RoleEntry) else program.reader
        is_served = role is not None and self._desks.get(reader) is desk
        return not is_served or self._pause_of(desk, program) is not None

    def _pause_of(self, desk: ReaderDesk, program: ReadingProgram) -> PauseEntry | None:
        role = self._known_role(program)
        pause = None if role is None else role.pause
        # The pause of a reader is among those of its own roles, and not of a gateway's.
        return pause or self._catalog().pauses.get((PauseKind.SERVICE, desk.entry.id))

    def _known_role(self, program: ReadingProgram) -> RoleEntry | RunnerEntry | None:
        """Find the role of a program, which is a gateway's if it names its reader; None where it was removed."""
        if program.role_id is None:
            return None
        catalog = self._catalog()
        return (catalog.runners if program.reader else catalog.reader_roles).get(program.role_id)
