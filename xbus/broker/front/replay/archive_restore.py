"""Restores archived envelopes that an emitter asks for, by a command: the broker knows no Parquet."""

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from xbus.broker.housekeeping.commands import INTERRUPT_SECONDS, CommandRunner
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.archive.reading import archived_bytes
from xbus.broker.journal.journal import Journal
from xbus.errors import Failed

log = logging.getLogger(__name__)


class ArchiveRestore:
    """Restores archived envelopes, one at a time, each by a process of its own.

    Args:
        journal: entered; says which envelopes are archived, before and after.
        space: says whether the journal has space for more.
        command: called with the envelope's id; empty if nothing can be restored.
        interrupt_seconds: seconds that it has for an orderly end.
    """

    def __init__(
        self, journal: Journal, space: Space, command: Sequence[str], interrupt_seconds: float = INTERRUPT_SECONDS
    ) -> None:
        self._journal = journal
        self._space = space
        self._command = command
        self._one_at_a_time = asyncio.Lock()
        self._runner = CommandRunner(interrupt_seconds)

    async def bring_back(self, envelope_id: UUID) -> None:
        """Return when the items of an archived envelope are in the journal, whoever restored them.

        Raises:
            Failed: the items can't be restored now (``envelope_archived``), or have no space (``journal_full``).
            JournalUnavailable: the database can't be read now.
        """
        async with self._one_at_a_time:
            data_bytes = await self._journal.read(archived_bytes, envelope_id)
            if data_bytes is None:
                return
            # Items that were restored a moment ago count, too.
            await self._space.refresh()
            self._space.check_back(data_bytes)
            if self._command and not self._runner.given_up:
                await self._restore(envelope_id)
            if await self._journal.read(archived_bytes, envelope_id) is not None:
                raise _still_archived(envelope_id)

    def give_up(self) -> None:
        """Restore nothing any more; cancel the running command, and answer its call so."""
        self._runner.give_up()

    async def _restore(self, envelope_id: UUID) -> None:
        told = {"action": "restore", "envelope_id": envelope_id}
        log.info("an archived envelope is put back, as it is to come again", extra=told)
        try:
            why = await self._runner.run(*self._command, str(envelope_id))
        except OSError as error:
            why = str(error)
        if why:
            log.warning("envelope %s can't be put back: %s", *(envelope_id, why), extra=told)


def _still_archived(envelope_id: UUID) -> Failed:
    """Make the answer for items that could not be restored; only the log says more, because it names places."""
    return Failed(
        f"the items of envelope {envelope_id} are in an archive, and can't be restored now",
        f"call again later; the broker's log gives the cause, and so does xbus restore {envelope_id}",
        code="envelope_archived",
    )
