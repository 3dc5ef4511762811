"""All readers of the bus: finds the one of a caller, and follows the configuration."""

import asyncio
import logging
from collections.abc import Callable

from xbus.broker.back.log import LogSlices
from xbus.broker.back.readers.calls import BatchCall, ReadingProgram, Settlement
from xbus.broker.back.readers.desk import ReaderDesk
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.broker.journal.readers import read_readers
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
        catalog: the configuration as it is now.
    """

    def __init__(self, journal: Journal, slices: LogSlices, runtime: Runtime, catalog: Callable[[], Catalog]) -> None:
        self._journal = journal
        self._slices = slices
        self._runtime = runtime
        self._catalog = catalog
        self._desks: dict[str, ReaderDesk] = {}
        self._following = asyncio.Lock()

    async def follow(self) -> None:
        """Take up readers, settings and ranges as the configuration has them now.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        async with self._following:
            entries = {entry.key: entry for entry in await self._journal.read(read_readers)}
            for key in self._desks.keys() - entries.keys():
                self._desks.pop(key).wake()
            for key, entry in entries.items():
                if key not in self._desks:
                    self._desks[key] = ReaderDesk(entry, self._journal, self._slices, self._runtime.clock)
                await self._desks[key].follow(entry)

    async def follow_when_possible(self) -> None:
        """Follow the configuration as soon as the database can be read."""
        while True:
            try:
                return await self.follow()
            except JournalUnavailable as error:
                log.warning("readers not read: %s", error, extra={"action": "readers_unread"})
                await asyncio.sleep(self._runtime.intervals.retry)

    async def watch(self) -> None:
        """For ever: free what silent programs had."""
        await every(LOOK_SECONDS, self._look)

    async def _look(self) -> None:
        for desk in self._desks.values():
            desk.look()

    async def read(self, program: ReadingProgram, call: BatchCall) -> BatchAnswer:
        """See :meth:`ReaderDesk.read`; a paused reader or role gets nothing."""
        desk = self._desk(program.role_id)
        return await desk.read(program, call, lambda: self._is_paused(desk, program.role_id))

    async def settle(self, program: ReadingProgram, done: Settlement) -> float:
        """See :meth:`ReaderDesk.settle`; returns the lease in seconds."""
        desk = self._desk(program.role_id)
        await desk.settle(program, done)
        return desk.entry.lease

    def renew(self, program: ReadingProgram) -> RangesAnswer:
        """See :meth:`ReaderDesk.renew`."""
        return self._desk(program.role_id).renew(program)

    async def leave(self, program: ReadingProgram) -> None:
        """See :meth:`ReaderDesk.leave`."""
        await self._desk(program.role_id).leave(program)

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

    def login_of(self, role_id: int | None, expected: str = "") -> str:
        """Give the login of a reader's role.

        Args:
            expected: the name of the reader whose role it has to be; empty for any.

        Raises:
            Refused: the role is not a reader's (``not_a_reader``), or another one's (``reader_not_allowed``).
        """
        role = self._role(role_id)
        if expected and self._desk(role_id).entry.name != expected:
            raise Refused(
                f"the role {role.login} does not read for {expected!r:.100}",
                f"name its reader, {self._desk(role_id).entry.name}, or call by a role of the other one",
                code="reader_not_allowed",
            )
        return role.login

    def _role(self, role_id: int | None) -> RoleEntry:
        role = None if role_id is None else self._catalog().reader_roles.get(role_id)
        if role is None:
            raise Refused(
                "the role is not a reader's",
                "make a reader by [[reader]], and a role with its name as service, in the bus file",
                code="not_a_reader",
            )
        return role

    def _desk(self, role_id: int | None) -> ReaderDesk:
        desk = self._desks.get(self._role(role_id).service)
        if desk is None:
            raise Refused("the reader has been made just now", "ask again in a second", code="reader_not_ready")
        return desk

    def _is_paused(self, desk: ReaderDesk, role_id: int | None) -> bool:
        role = None if role_id is None else self._catalog().reader_roles.get(role_id)
        return role is None or role.pause is not None or self._desks.get(role.service) is not desk
