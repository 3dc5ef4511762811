"""Decides how long an emitter insists, and how fast it tries again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from xbus.backoff import Backoff, Patience
from xbus.clock import Clock
from xbus.errors import CallError, ConnectionLost, Failed, TimedOut
from xbus.waiting import WaitLog

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
    """Measures a row of failed calls, and tells why the program waits.

    Args:
        seconds: as of ``Patience``.
        clock: tells the time.
        pause_seconds: how long to wait while the bus is paused.
    """

    def __init__(self, seconds: float, clock: Clock, pause_seconds: float = 0.0) -> None:
        super().__init__(seconds, Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), clock.monotonic)
        self._pause_seconds = pause_seconds
        self._paused_since: float | None = None
        self._log = WaitLog(logger, "emitter_waits", clock.monotonic)
        self.failure: CallError | None = None
        """Why the row of failures goes on; None without a failure since the last success."""

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
        self._log.ends()
        self.failure = None

    def failed(self, told: float = 0.0) -> float | None:
        """As ``Patience.failed``; each delay leaves time for the try behind it.

        Args:
            told: the seconds that the bus asks to wait; 0 where it leaves that to the emitter.
        """
        delay = super().failed()
        if delay is None or self.left < max(SHORTEST_TRY_SECONDS, told):
            return None
        return told or min(delay, self.left / 2)

    def delay_after(self, error: CallError) -> float:
        """Count one more failure, tell the wait, and give the seconds until the next try.

        Silence says less than the answer before it: the answer remains the cause.

        Raises:
            CallError: the time is over.
        """
        if self.failure is None or not isinstance(error, TimedOut):
            self.failure = error
        delay = self.failed(told_seconds(error))
        if delay is None:
            raise self.given_up(self.failure) from error
        self._log.waits(self.failure, self._pause_seconds if self.failure.code == PAUSED else self.seconds)
        return delay

    def limit(self, seconds: float) -> float:
        """Shorten a time-out to what is left of the row; without repeats it is as it was."""
        return min(seconds, self.left) if self.seconds else seconds

    def given_up(self, error: CallError) -> CallError:
        """Word ``error`` for a caller whose repeats were in vain; unchanged without repeats."""
        insisted = f", and each try within {self.seconds:g} s failed" if self.seconds else ""
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
            delay = patience.delay_after(failure)
        await asyncio.sleep(delay)


async def within(
    timeout: float | None, work: Awaitable[T], failure: Callable[[], CallError | None], began: float | None = None
) -> T:
    """Wait for ``work`` for so many seconds; None for as long as it takes.

    Args:
        timeout: the seconds.
        work: is cancelled when they are over.
        failure: gives the failure because of which the work waits; None where it waits for an answer.
        began: when the seconds began, by the clock of the event loop; None for now.

    Raises:
        CallError: it took longer: the failure, or ``TimedOut`` where none is known.
    """
    if timeout is None:
        return await work
    since = asyncio.get_running_loop().time() if began is None else began
    try:
        async with asyncio.timeout_at(since + timeout):
            return await work
    except TimeoutError:
        known = failure()
        if known is not None and not isinstance(known, (TimedOut, ConnectionLost)):
            cause = f"{known.cause}, and the {timeout:g} s of `timeout` are over"
            raise type(known)(cause, known.next_step, code=known.code, details=known.details) from None
        raise TimedOut(
            f"the bus has not answered within the {timeout:g} s of `timeout`",
            "see whether it runs at this address; what you send under a key you may send again safely",
        ) from None
