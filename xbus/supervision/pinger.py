"""Pings the recipients, and gives up those that do not answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from xbus.ids import Ids
from xbus.periodic import after_every

log = logging.getLogger(__name__)


class Pinged(Protocol):
    """A recipient as supervision sees it."""

    def silent_for(self) -> float:
        """Compute for how many seconds it has given no sign of life."""

    async def ping(self, text: str, seconds: float) -> bool:
        """Check whether it sends ``text`` back within this many seconds."""


Recipient = TypeVar("Recipient", bound=Pinged)


class Pinger(Generic[Recipient]):
    """Pings the recipients that gave no sign of life since the last round.

    Args:
        recipients: gives those to watch at the moment.
        give_up: takes one off the list, for a reason.
        ids: makes the texts, so that no old answer passes for a new one.
        interval: seconds from one round to the next.
        timeout: seconds that an answer may take.
        misses: the missing answers in a row after which a recipient counts as lost.
    """

    def __init__(
        self,
        recipients: Callable[[], Sequence[Recipient]],
        give_up: Callable[[Recipient, str], Awaitable[None]],
        ids: Ids,
        *,
        interval: float,
        timeout: float,
        misses: int,
    ) -> None:
        self._recipients = recipients
        self._give_up = give_up
        self._ids = ids
        self._interval = interval
        self._timeout = timeout
        self._misses = misses
        self._missed: WeakKeyDictionary[Recipient, int] = WeakKeyDictionary()
        """The number of pings in a row that each recipient did not answer."""

    async def watch(self) -> None:
        """Ping those that were silent, all at once, round by round, for ever."""
        await after_every(self._interval, self.ping_all)

    async def ping_all(self) -> None:
        """Ping in one round."""
        async with asyncio.TaskGroup() as round_of_pings:
            for recipient in self._recipients():
                round_of_pings.create_task(self._ping(recipient))

    def is_silent(self, recipient: Recipient) -> bool:
        """Check whether it left the last ping unanswered."""
        return self._missed.get(recipient, 0) > 0

    async def _ping(self, recipient: Recipient) -> None:
        is_heard = self._is_lively(recipient) or await recipient.ping(self._ids.token(), self._timeout)
        if not is_heard:
            # A busy machine may have kept this process from its sockets. One more turn of the loop reads what is there.
            await asyncio.sleep(0)
            is_heard = self._is_lively(recipient)
        self._missed[recipient] = 0 if is_heard else self._missed.get(recipient, 0) + 1
        if is_heard:
            return
        log.info("a ping was not answered", extra={"action": "ping_missed"})
        if self._missed[recipient] >= self._misses:
            await self._give_up(recipient, f"it did not answer {self._misses} pings in a row")

    def _is_lively(self, recipient: Recipient) -> bool:
        return recipient.silent_for() < self._interval
