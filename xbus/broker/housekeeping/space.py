"""The limit of the journal's size: above it nothing new begins, open envelopes may end, and delivery goes on."""

import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention.holders import Holders, read_holders
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.errors import Failed, JournalUnavailable
from xbus.periodic import every
from xbus.rpc.deferred import Deferred, Promise
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

CODE = "journal_full"

REFRESH_SECONDS = 1.0
"""Seconds between looks at what other processes stored and removed."""

REOPEN_SHARE = 0.95
"""A journal that was full takes new envelopes again below this part of its limit."""

BACK_SHARE = 0.9
"""The part of its limit up to which restored envelopes may fill the journal. Nothing is removed for them."""

FINISH_SHARE = 1.1
"""Envelopes that are open may grow up to this part of the limit."""

OF_ONE = 0.2
"""The part of the free space for one emitter, once less than a twentieth of the limit is free. So the bus refuses a
greedy emitter before others. A larger part refuses it later, and leaves less to others."""


class Space:
    """Lets emitters' calls pass while the journal has space for their items.

    Args:
        journal: entered.
        max_bytes: the most bytes of all segments' data; 0 for no limit.
        health: shows a problem while the journal is full.
        keep_seconds: how long types without a limit of their own are kept; infinite for ever.
    """

    def __init__(self, journal: Journal, max_bytes: int, health: Health, keep_seconds: float = math.inf) -> None:
        self._journal = journal
        self._max_bytes = max_bytes
        self._health = health
        self._elsewhere = 0
        self._keep_seconds = keep_seconds
        self._next_step = Holders().next_step()
        self._cause: str | None = None
        self._full = False
        self._taken: defaultdict[int, int] = defaultdict(int)
        """By emitter, the bytes that it has sent since the space became scarce."""

    @property
    def live_bytes(self) -> int:
        """The bytes of the segments' data, with those on their way into the journal."""
        return self._elsewhere + self._journal.stored_bytes + self._journal.pending_bytes

    def check_new(self) -> None:
        """Let a new envelope pass.

        Raises:
            Failed: journal_full.
        """
        if self._look():
            raise self._refusal("a new envelope", self._max_bytes)

    def check_back(self, data_bytes: int) -> None:
        """Let an archived envelope be restored; it stays, so it must leave space for new ones.

        Args:
            data_bytes: how much its items take.

        Raises:
            Failed: journal_full.
        """
        self.check_new()
        if self._max_bytes and self.live_bytes + data_bytes > self._max_bytes * BACK_SHARE:
            raise self._refusal(f"{data_bytes} bytes back from an archive", int(self._max_bytes * BACK_SHARE))

    def may_grow(self) -> bool:
        """Check whether what has begun may have more items: open envelopes, and those that nodes emit.

        Nodes get this much, as what came to them is removed only when they have emitted it.
        """
        return not self._max_bytes or self.live_bytes <= self._max_bytes * FINISH_SHARE

    def check_more(self) -> None:
        """Let items of an envelope pass that is open already.

        Raises:
            Failed: journal_full.
        """
        if not self.may_grow():
            raise self._refusal("more items", int(self._max_bytes * FINISH_SHARE))

    def take(self, emitter_id: int, data_bytes: int) -> None:
        """Let an emitter's items pass; once space is scarce, up to its part of what is left.

        Raises:
            Failed: journal_full.
        """
        if self._max_bytes:
            self._take_all((emitter_id,), (data_bytes,))

    def take_new(self, emitter_ids: Sequence[int], data: Sequence[bytes]) -> None:
        """Let new envelopes of several emitters pass, all or none of them; see ``check_new`` and ``take``.

        Args:
            data: the items of each.
        """
        if self._max_bytes:
            self.check_new()
            self._take_all(emitter_ids, [*map(len, data)])

    def give_back(self, emitter_ids: Sequence[int], data: Sequence[bytes]) -> None:
        """Take note that items which passed are refused all the same: they take no space.

        Args:
            emitter_ids: as of ``take_new``.
            data: as of ``take_new``.
        """
        for emitter_id, items in zip(emitter_ids, data, strict=True):
            if emitter_id in self._taken:
                self._taken[emitter_id] = max(0, self._taken[emitter_id] - len(items))

    def await_storing(
        self, emitter_ids: Sequence[int], data: Sequence[bytes], writing: Deferred[Any] | Promise[Any]
    ) -> None:
        """Have items that passed give their space back once the answer to their write says that they are not stored.

        Args:
            emitter_ids: as of ``take_new``.
            data: as of ``take_new``.
        """
        if self._taken:
            writing.add_done_callback(partial(self._settle, emitter_ids, data))

    def _settle(self, emitter_ids: Sequence[int], data: Sequence[bytes], writing: Deferred[Any] | Promise[Any]) -> None:
        is_stored = not writing.cancelled() and writing.exception() is None
        left_out = getattr(writing.result(), "taken", ()) if is_stored else range(len(data))
        self.give_back([emitter_ids[place] for place in left_out], [data[place] for place in left_out])

    def _take_all(self, emitter_ids: Sequence[int], sizes: Sequence[int]) -> None:
        if (live := self.live_bytes) <= self._max_bytes * REOPEN_SHARE:
            return
        for emitter_id in {*emitter_ids}:
            self._check_part(emitter_id, live)
        for emitter_id, data_bytes in zip(emitter_ids, sizes, strict=True):
            self._taken[emitter_id] += data_bytes

    def _check_part(self, emitter_id: int, live: int) -> None:
        """Let an emitter pass that has not had its part of what is left."""
        if self._taken[emitter_id] > (self._max_bytes * FINISH_SHARE - live) * OF_ONE:
            cause = f"the journal has {live} bytes of items, max_bytes is {self._max_bytes}, and one emitter fills it"
            self._trouble(cause)
            raise self._refusal("less from an emitter that has sent so much lately; others", self._max_bytes)

    def _look(self) -> bool:
        """Check whether the journal is full now."""
        if not self._max_bytes:
            return False
        live = self.live_bytes
        if self._taken and live <= self._max_bytes * REOPEN_SHARE:
            self._taken.clear()
            self._over()
        if self._full != (live > self._max_bytes * (REOPEN_SHARE if self._full else 1)):
            self._full = not self._full
            if self._full:
                cause = f"the journal has {live} bytes of items, and max_bytes is {self._max_bytes}"
                self._trouble(cause)
            else:
                self._over()
        return self._full

    def _trouble(self, cause: str) -> None:
        self._cause = cause
        self._health.trouble(CODE, cause, self._next_step)

    def _over(self) -> None:
        self._cause = None
        self._health.over(CODE)

    def _refusal(self, what: str, limit: int) -> Failed:
        return Failed(
            f"the journal has {self.live_bytes} bytes of items and takes {what} up to {limit}",
            "repeat the call later: space returns when recipients have got their envelopes",
            code=CODE,
        )

    async def refresh(self) -> None:
        """Read the bytes in the journal.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        stored_here = self._journal.stored_bytes
        self._elsewhere = await self._journal.read(read_stored_bytes) - stored_here
        self._look()

    async def name_holders(self) -> None:
        """Name in health, while the journal is full, who or what keeps envelopes there.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        if self._cause is not None:
            self._next_step = (await self._journal.read(read_holders, self._keep_seconds)).next_step()
            if self._cause is not None:
                self._trouble(self._cause)

    async def watch(self) -> None:
        """Refresh, for ever; an unreachable database only delays it. Return at once without a limit."""
        if self._max_bytes:
            await every(REFRESH_SECONDS, self._try_to_refresh)

    async def _try_to_refresh(self) -> None:
        try:
            await self.refresh()
            await self.name_holders()
        except JournalUnavailable as error:
            log.debug("space not read: %s", error, extra={"action": "space_unread"})
