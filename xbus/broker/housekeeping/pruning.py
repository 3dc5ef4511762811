"""Removes from the journal what nobody needs any more, in small steps between which everybody else goes on."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from xbus.broker.housekeeping.looks import pause_after
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention import pruning
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.periodic import every

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between looks whether the journal is short of space."""

ROUND_SECONDS = 60.0
"""Seconds between looks for envelopes that have become old enough."""

TIGHT_SHARE = 0.9
"""The part of its limit above which the journal is short of space: then settled envelopes go before their time."""

CANCELLED_DAYS = 1.0
"""Days for which a cancelled envelope is kept; no longer than a settled one."""

CANCELLED_SECONDS = 60.0
"""Seconds for which it is kept while its space is wanted: late calls still learn what became of it."""

Step: TypeAlias = Callable[[Any, int], pruning.PruningStep]
"""Removes some above a position, on a connection."""


class Pruner:
    """Removes settled envelopes when they are old enough or their space is wanted.

    Args:
        journal: entered.
        clock: measures ages.
        keep_days: how long a settled envelope is kept; 0 for ever.
        max_bytes: what the segments' data may take together; 0 for no limit.
        step_bytes: one step removes about so much; others write between two steps.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        keep_days: float,
        max_bytes: int,
        step_bytes: int = pruning.STEP_BYTES,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._keep_days = keep_days
        self._max_bytes = max_bytes
        self._step_bytes = step_bytes
        self._next_round = 0.0

    async def watch(self) -> None:
        """Remove old envelopes, for ever; an unreachable database only delays it. Return at once if all are kept."""
        if self._keep_days:
            self._next_round = self._clock.monotonic()
            await every(LOOK_SECONDS, self._look)

    async def _look(self) -> None:
        try:
            if self._clock.monotonic() >= self._next_round:
                await self.prune_old()
                self._next_round = self._clock.monotonic() + ROUND_SECONDS
            if await self._is_tight():
                await self.prune_for_space()
        except JournalUnavailable as error:
            log.warning("nothing removed: %s", error, extra={"action": "pruning_delayed"})
        except JournalError as error:
            log.error("what is settled can't be removed: %s", error, extra={"action": "pruning_failed"})
            self._next_round = self._clock.monotonic() + ROUND_SECONDS

    async def prune_old(self) -> None:
        """Remove envelopes that have been settled or cancelled for long enough.

        Raises:
            JournalError: the database refuses; earlier removals remain.
        """
        now = self._clock.now()
        settled = now - timedelta(days=self._keep_days)
        cancelled = now - timedelta(days=min(CANCELLED_DAYS, self._keep_days))
        await self._prune(self._settled_before(settled, now, keep_rows=False), "settled long ago")
        await self._prune(self._cancelled_before(cancelled, now), "cancelled")

    async def prune_for_space(self) -> None:
        """Remove cancelled and then settled envelopes, the oldest first, until the space suffices; receipts stay.

        Raises:
            JournalError: the database refuses; earlier removals remain.
        """
        now = self._clock.now()
        cancelled = now - timedelta(seconds=CANCELLED_SECONDS)
        await self._prune(self._cancelled_before(cancelled, now), "cancelled, to make space", self._is_tight)
        await self._prune(self._settled_before(now, now, keep_rows=True), "settled, to make space", self._is_tight)

    def _settled_before(self, until: datetime, now: datetime, *, keep_rows: bool) -> Step:
        name = self._journal.name
        step_bytes = self._step_bytes
        return lambda connection, after: pruning.prune_settled(
            connection, name, after, until, now, keep_rows=keep_rows, step_bytes=step_bytes
        )

    def _cancelled_before(self, until: datetime, now: datetime) -> Step:
        name = self._journal.name
        step_bytes = self._step_bytes
        return lambda connection, _: pruning.prune_cancelled(connection, name, until, now, step_bytes=step_bytes)

    async def _prune(
        self,
        step: Step,
        why: str,
        is_wanted: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        envelopes = data_bytes = 0
        after: int | None = 0
        try:
            while after is not None and (is_wanted is None or await is_wanted()):
                began = self._clock.monotonic()
                done = await self._journal.run(step, after)
                after = done.after
                envelopes += done.envelopes
                data_bytes += done.data_bytes
                await pause_after(began, self._clock)
        finally:
            if envelopes:
                extra = {"action": "pruned", "envelopes": envelopes, "bytes": data_bytes}
                log.info("removed %d envelopes that were %s", envelopes, why, extra=extra)

    async def _is_tight(self) -> bool:
        if not self._max_bytes:
            return False
        return await self._journal.read(pruning.read_stored_bytes) > self._max_bytes * TIGHT_SHARE
