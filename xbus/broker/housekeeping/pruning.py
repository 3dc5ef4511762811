"""Removes from the journal what nobody needs any more, in small steps between which everybody else goes on."""

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from xbus.broker.housekeeping.looks import pause_after
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.retention import pruning, rules
from xbus.broker.journal.retention.rules import READ_ENVELOPES, Ages, Rule, Scan, read_keepings, search
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.periodic import every

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between looks whether the journal is short of space."""

ROUND_SECONDS = 60.0
"""Seconds between looks for envelopes that have become old enough."""

REST_SHARE = 9
"""The pause after a removal, as a multiple of it: a journal that keeps much is looked through less often."""

DAY_SECONDS = 24 * 3600.0

TIGHT_SHARE = 0.9
"""The part of its limit above which the journal is short of space: then settled envelopes go before their time."""

CANCELLED_DAYS = 1.0
"""Days for which a cancelled envelope is kept; no longer than a settled one."""

CANCELLED_SECONDS = 60.0
"""Seconds for which it is kept while its space is wanted: late calls still learn what became of it."""

Step: TypeAlias = Callable[[Any, int], pruning.PruningStep]
"""Removes some above a position, on a connection."""


class Pruner:
    """Removes settled envelopes when they were kept for long enough or their space is wanted.

    Args:
        journal: entered.
        clock: measures ages.
        keep_days: how long types are kept that don't say so themselves; 0 for ever.
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
        self._next_space = 0.0

    async def watch(self) -> None:
        """Remove old envelopes, for ever; an unreachable database only delays it."""
        self._next_round = self._next_space = self._clock.monotonic()
        await every(LOOK_SECONDS, self._look)

    async def _look(self) -> None:
        try:
            if self._clock.monotonic() >= self._next_round:
                self._next_round = await self._after(self.prune_old) + ROUND_SECONDS
            if self._clock.monotonic() >= self._next_space and await self._is_tight():
                self._next_space = await self._after(self.prune_for_space)
        except JournalUnavailable as error:
            log.warning("nothing removed: %s", error, extra={"action": "pruning_delayed"})
        except JournalError as error:
            log.error("what is settled can't be removed: %s", error, extra={"action": "pruning_failed"})
            self._next_round = self._clock.monotonic() + ROUND_SECONDS

    async def _after(self, prune: Callable[[], Awaitable[None]]) -> float:
        """Carry out a removal; when the next one may begin."""
        began = self._clock.monotonic()
        await prune()
        ended = self._clock.monotonic()
        return ended + REST_SHARE * (ended - began)

    async def prune_old(self) -> None:
        """Remove envelopes that have been settled or cancelled for long enough.

        Raises:
            JournalError: the database refuses; earlier removals remain.
        """
        now = self._clock.now()
        for scan in await self._scans(now):
            await self._prune_settled(scan, now, "settled, and kept for long enough", keep_rows=False)
        if self._keep_days:
            cancelled = now - timedelta(days=min(CANCELLED_DAYS, self._keep_days))
            await self._prune(self._cancelled_before(cancelled, now), "cancelled")
        await self._prune(lambda connection, _: pruning.forget_keys(connection, now), "keys, kept for long enough")

    async def prune_for_space(self) -> None:
        """Remove cancelled and then settled envelopes, the oldest first, until the space suffices; receipts stay.

        Types without a limit of their age keep what they have.

        Raises:
            JournalError: the database refuses; earlier removals remain.
        """
        now = self._clock.now()
        scan = (await self._ages()).way_for_space(now)
        if scan is not None:
            cancelled = now - timedelta(seconds=CANCELLED_SECONDS)
            await self._prune(self._cancelled_before(cancelled, now), "cancelled, to make space", self._is_tight)
            # What somebody has got goes before what nobody takes.
            for why, claimed in (("settled", True), ("settled, and nobody takes their types", False)):
                way = replace(scan, claimed=claimed)
                await self._prune_settled(way, now, f"{why}, to make space", self._is_tight, keep_rows=True)

    async def _ages(self) -> Ages:
        return Ages(await self._journal.read(read_keepings), self._keep_days * DAY_SECONDS or math.inf)

    async def _scans(self, now: datetime) -> list[Scan]:
        """Find out how far each type, and all others together, may be removed."""
        ages = await self._ages()
        beyond = {each: await self._beyond(each, limit) for each, limit in ages.limits.items()}
        ways = ages.ways(ages.rules(now, beyond))
        return [replace(scan, upto=await self._end(rule)) for scan, rule in ways]

    async def _beyond(self, event_type_id: int, limit: int) -> int:
        """Count the newest events of a type until they have so many bytes.

        Give the position up to which the other events lie.
        """
        counted = await self._journal.read(rules.begin_count)
        while counted.upto is None:
            began = self._clock.monotonic()
            counted = await self._journal.read(rules.count_bytes, event_type_id, limit, counted)
            await pause_after(began, self._clock)
        return counted.upto

    async def _end(self, rule: Rule) -> int | None:
        """Give the last position that a rule may let go; None where it may be any."""
        if rule.last_per_key is not None:
            return None
        return max(rule.upto, 0 if rule.until is None else await self._journal.read(position_before, rule.until))

    async def _prune_settled(
        self,
        scan: Scan,
        now: datetime,
        why: str,
        is_wanted: Callable[[], Awaitable[bool]] | None = None,
        *,
        keep_rows: bool,
    ) -> None:
        name, step_bytes = self._journal.name, self._step_bytes

        def step(connection: Any, after: int) -> pruning.PruningStep:
            return pruning.prune_settled(connection, name, after, scan, now, keep_rows=keep_rows, step_bytes=step_bytes)

        async def skip(after: int) -> int | None:
            """Pass what stays by reading alone: the writer has other things to do."""
            look = partial(search, keep_rows=keep_rows, envelopes=READ_ENVELOPES)
            found = await self._journal.read(look, after, scan)
            while not found.settled and found.after is not None:
                began = self._clock.monotonic()
                after = found.after
                found = await self._journal.read(look, after, scan)
                await pause_after(began, self._clock)
            return found.settled[0].position - 1 if found.settled else None

        await self._prune(step, why, is_wanted, skip)

    def _cancelled_before(self, until: datetime, now: datetime) -> Step:
        name = self._journal.name
        step_bytes = self._step_bytes
        return lambda connection, _: pruning.prune_cancelled(connection, name, until, now, step_bytes=step_bytes)

    async def _prune(
        self,
        step: Step,
        why: str,
        is_wanted: Callable[[], Awaitable[bool]] | None = None,
        skip: Callable[[int], Awaitable[int | None]] | None = None,
    ) -> None:
        envelopes = data_bytes = 0
        after: int | None = 0
        try:
            while after is not None and (is_wanted is None or await is_wanted()):
                after = after if skip is None else await skip(after)
                if after is None:
                    break
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
