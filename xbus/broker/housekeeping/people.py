"""Removes sessions of people that have ended by themselves."""

from xbus.broker.housekeeping.looks import look_regularly
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.people import remove_expired
from xbus.clock import Clock

LOOK_SECONDS = 600.0
"""Seconds between two removals. An ended session lets nobody in, so this only bounds the rows that are kept."""


async def remove_ended_sessions(journal: Journal, clock: Clock, look_seconds: float = LOOK_SECONDS) -> None:
    """Remove them now and then, for ever; an unreachable database only delays it.

    Args:
        journal: entered.
        clock: says which have ended.
        look_seconds: from one removal to the next.
    """

    async def look() -> None:
        await journal.run(remove_expired, clock.now())

    await look_regularly(look, look_seconds, "ended sessions of people")
