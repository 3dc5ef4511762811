"""Looks that the broker takes at the journal now and then."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from xbus.clock import Clock
from xbus.errors import JournalError

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.02
PAUSE_SHARE = 1
"""The pause after each step, as a multiple of the step: half of the time is for others."""


async def look_regularly(look: Callable[[], Awaitable[None]], seconds: float, what: str) -> None:
    """Take a look for ever; a database that does not do it now only delays it.

    The first look waits as long as each other one: a broker that starts has more urgent things to read, and its
    recipients register meanwhile.

    Args:
        look: may raise JournalError.
        seconds: from one look to the next.
        what: is looked at, for the log.
    """
    while True:
        await asyncio.sleep(seconds)
        try:
            await look()
        except JournalError as error:
            log.info("%s not looked at: %s", what, error, extra={"action": "unread"})


async def pause_after(began: float, clock: Clock) -> None:
    """Leave time to everybody else, after a step of something long that began then."""
    await asyncio.sleep(max(PAUSE_SECONDS, PAUSE_SHARE * (clock.monotonic() - began)))
