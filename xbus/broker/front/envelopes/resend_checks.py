"""Compares the content that a session sends again under a key, before the envelope may be sealed."""

import asyncio
from collections.abc import Hashable
from copy import copy

from xbus.errors import Refused
from xbus.rpc.deferred import Deferred

MOST_APART = 10_000
"""How many batches that could not be compared are told apart: the seal may pass once each was sent again. Behind more,
as behind one that was refused, only a session that begins anew may seal."""


class ResendChecks:
    """Keeps what may be other than what is there: it is being compared, could not be, or was refused.

    Who sends ahead has sent the seal before it hears that something was refused: that must not be sealed as if it had
    been sent so.
    """

    def __init__(self, most_apart: int = MOST_APART) -> None:
        self._most_apart = most_apart
        self._doubts: dict[Hashable, asyncio.Future[int] | BaseException] = {}

    @property
    def pending(self) -> "list[asyncio.Future[int]]":
        """The comparisons that go on."""
        return [doubt for doubt in self._doubts.values() if isinstance(doubt, asyncio.Future) and not doubt.done()]

    def add(self, what: Hashable, comparing: "asyncio.Future[int]") -> None:
        """Follow a comparison, in place of an earlier one of the same."""
        self._doubts[what] = comparing
        comparing.add_done_callback(lambda _: self._compared(what, comparing))

    def begin_anew(self) -> None:
        """Another session sends from the beginning: what an earlier one sent says nothing about it."""
        self._doubts.clear()

    def refused(self, what: Hashable, refusal: Refused) -> None:
        """Take note that of something this session sent other than what is there."""
        self._doubts[what] = refusal

    def agreed(self, what: Hashable) -> None:
        """Take note that it has sent the same now."""
        self._doubts.pop(what, None)

    def check(self) -> None:
        """Let the seal pass, when nothing is pending.

        Raises:
            XbusError: what was said of something that went wrong, such as content_differs.
        """
        for doubt in self._doubts.values():
            error = doubt.exception() if isinstance(doubt, asyncio.Future) else doubt
            if error is not None:
                raise error

    def _compared(self, what: Hashable, comparing: "asyncio.Future[int]") -> None:
        if self._doubts.get(what) is not comparing:
            return
        # A copy has no traceback, which would keep the batch in memory.
        error = copy(None if comparing.cancelled() else comparing.exception())
        del self._doubts[what]
        if error is not None:
            is_kept_apart = not isinstance(error, Refused) and len(self._doubts) < self._most_apart
            self._doubts[what if is_kept_apart else None] = error


async def both(same: "asyncio.Future[int]", rest: Deferred[int]) -> int:
    """The answer to a batch of which the first part is compared, and the rest taken."""
    await same
    return await rest
