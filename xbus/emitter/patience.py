"""Decides how long an emitter insists, and how fast it tries again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from xbus.backoff import Backoff, Patience
from xbus.clock import Clock
from xbus.errors import CallError, Failed, TimedOut

T = TypeVar("T")

logger = logging.getLogger(__name__)

PAUSED = "paused"
"""The code of refusals that end when an operator resumes the emitter or the event type."""

SLOW_DOWN = "slow_down"
"""The code of refusals that say how long to wait: the emitter has reached one of its limits."""

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0

SHORTEST_TRY_SECONDS = 0.001
"""With less time than this left nothing is tried again."""


class EmitterPatience(Patience):
    """Measures a row of failed calls.

    Args:
        seconds: as of ``Patience``.
        clock: tells the time.
        pause_seconds: how long to wait while the bus is paused.
    """

    def __init__(self, seconds: float, clock: Clock, pause_seconds: float = 0.0) -> None:
        super().__init__(seconds, Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), clock.monotonic)
        self._pause_seconds = pause_seconds
        self._paused_since: float | None = None

    def paused(self) -> bool:
        """Note that the bus is well, and that a person has paused it: that may take longer than a failure.

        Returns:
            Whether to wait on.
        """
        now = self._now()
        if self._paused_since is None:
            self._paused_since = now
        self._until = now + self.seconds
        return bool(self.seconds) and now - self._paused_since < self._pause_seconds

    def succeeded(self) -> None:
        """As ``Patience.succeeded``; a pause is over, too."""
        super().succeeded()
        self._paused_since = None

    def failed(self, told: float = 0.0) -> float | None:
        """As ``Patience.failed``; each delay leaves time for the try behind it.

        Args:
            told: the seconds that the bus asks to wait; 0 where it leaves that to the emitter.
        """
        delay = super().failed()
        if delay is None or self.left < max(SHORTEST_TRY_SECONDS, told):
            return None
        return told or min(delay, self.left / 2)

    def limit(self, seconds: float) -> float:
        """Shorten a time-out to what is left of the row; without repeats it is as it was."""
        return min(seconds, self.left) if self.seconds else seconds

    def given_up(self, error: CallError) -> CallError:
        """Word ``error`` for a caller whose repeats were in vain; unchanged without repeats."""
        insisted = f", and no repeat helped within {self.seconds:g} s" if self.seconds else ""
        if self.seconds and error.code == PAUSED:
            insisted = f", and was not resumed within {self._pause_seconds:g} s"
        next_step = error.next_step or "see whether the bus runs at this address"
        return type(error)(f"{error.cause}{insisted}", next_step, code=error.code, details=error.details)


def told_seconds(error: CallError) -> float:
    """Read how long the bus asks to wait before the call is made again; 0 where it does not say."""
    return error.details.get("seconds", 0.0) if error.code == SLOW_DOWN else 0.0


async def insist(patience: EmitterPatience, seconds: float, attempt: Callable[[float], Awaitable[T]]) -> T:
    """Attempt a call until it gets an answer.

    Args:
        patience: measures the failures; the row begins now.
        seconds: how long each attempt may wait.
        attempt: makes the call, and waits for as long as it is told.

    Raises:
        Refused: the answer is a refusal.
        Failed: no answer came for as long as the patience lasts.
    """
    patience.begin()
    while True:
        try:
            return await attempt(patience.limit(seconds))
        except Failed as failure:
            delay = patience.failed()
            if delay is None:
                raise patience.given_up(failure) from failure
            logger.info("no answer yet", extra={"action": "emitter_insists", "code": failure.code})
            await asyncio.sleep(delay)


async def within(timeout: float | None, work: Awaitable[T]) -> T:
    """Wait for ``work`` for so many seconds; None for as long as it takes.

    Raises:
        TimedOut: it took longer, and is cancelled.
    """
    if timeout is None:
        return await work
    try:
        async with asyncio.timeout(timeout):
            return await work
    except TimeoutError:
        raise TimedOut(
            f"the bus has not answered within the {timeout:g} s of `timeout`",
            "see whether it runs at this address; what you send under a key you may send again safely",
        ) from None
