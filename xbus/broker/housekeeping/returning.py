"""Has archived envelopes put back that roles and readers want which begin in the past."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol
from uuid import UUID

from xbus.broker.housekeeping.commands import CommandRunner
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.archive.reading import find_archived_bytes
from xbus.broker.journal.journal import Journal
from xbus.errors import Failed, JournalError
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

CODE = "archive_not_restored"

RETRY_SECONDS = 10.0
"""Seconds until envelopes are tried again that could not be put back. Fewer start more commands in vain."""

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of items that one command puts back. More make fewer commands, and fill the journal further ahead."""


class Demand(Protocol):
    """Says which archived envelopes are wanted."""

    async def next(self) -> list[UUID]:
        """Wait until something is wanted."""

    def settle(self, envelope_ids: Iterable[UUID]) -> None:
        """Have all look again that wait for these."""


class ArchiveReturns:
    """Puts back what is wanted, by one command at a time.

    Args:
        journal: says what is archived.
        demand: says what is wanted.
        space: says whether the journal has space for more.
        health: shows that something can't be put back.
        command: puts envelopes back, whose ids are added to it.
        retry_seconds: until it is tried again.
    """

    def __init__(
        self,
        journal: Journal,
        demand: Demand,
        space: Space,
        health: Health,
        command: Sequence[str],
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._journal = journal
        self._demand = demand
        self._space = space
        self._health = health
        self._command = command
        self._retry_seconds = retry_seconds
        self._runner = CommandRunner()
        self._failed: set[UUID] = set()
        """Envelopes that were wanted and could not be put back."""

    async def watch(self) -> None:
        """For ever: put back what is wanted."""
        while True:
            wanted = await self._demand.next()
            try:
                why, next_step = await self._put_back(wanted)
            except JournalError as error:
                why, next_step = str(error), ""
            if why:
                log.warning("archived envelopes can't be put back: %s", why, extra={"action": CODE})
                cause = "roles or readers that begin in the past wait for archived envelopes, which can't be put back"
                self._health.trouble(CODE, cause, next_step or "see the log at action=archive_not_restored")
                await asyncio.sleep(self._retry_seconds)
            else:
                self._health.over(CODE)
            self._demand.settle(wanted)

    async def _put_back(self, wanted: Sequence[UUID]) -> tuple[str, str]:
        """Put envelopes back, as many as go at once. Give the cause of a failure and what helps, or nothing."""
        found = await self._journal.read(find_archived_bytes, wanted)
        self._failed &= found.keys()
        # The command ends with the first one that fails, which must not keep the others away for ever.
        archived = _fitting({each: found[each] for each in sorted(found, key=self._failed.__contains__)})
        if not archived:
            return "", ""
        try:
            await self._space.refresh()
            self._space.check_back(sum(archived.values()))
        except Failed as failure:
            return str(failure), failure.next_step
        log.info("archived envelopes are put back", extra={"action": "restore", "envelopes": len(archived)})
        try:
            why = await self._runner.run(*self._command, *map(str, archived))
        except OSError as error:
            return str(error), ""
        if why:
            left = await self._journal.read(find_archived_bytes, [*archived])
            self._failed.update(islice((each for each in archived if each in left), 1))
        return why, ""


def _fitting(archived: Mapping[UUID, int]) -> dict[UUID, int]:
    """Take the first ones up to so many bytes, at least one."""
    found: dict[UUID, int] = {}
    for envelope_id, size in archived.items():
        if found and sum(found.values()) + size > MOST_BYTES:
            break
        found[envelope_id] = size
    return found
