"""Answers callers while the database is away or silent, and reports the outage to health."""

import logging

from xbus.broker.journal.journal import Journal
from xbus.periodic import every
from xbus.rpc.server import Server
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

CODE = "journal_unavailable"

LOOK_SECONDS = 0.5
"""Seconds between two looks at the journal. Smaller notices an outage sooner and costs wake-ups."""


async def tell_outages(journal: Journal, health: Health, look_seconds: float = LOOK_SECONDS) -> None:
    """For ever: say in health while nothing can be written; it is over when the first write has gone well again."""
    logged = False

    async def look() -> None:
        nonlocal logged
        outage, overdue = journal.outage, journal.overdue
        if outage is None:
            health.over(CODE)
        elif overdue is not None:
            health.trouble(CODE, overdue.cause, overdue.next_step)
        else:
            # What the database said may tell where it is and who asks it; health answers whoever asks.
            health.trouble(CODE, "the database can't be written now", "see that it runs and has room, and the log")
            if not logged:
                log.warning("nothing can be written: %s", outage, extra={"action": "journal_unavailable"})
        logged = outage is not None

    await every(look_seconds, look)


async def answer_overdue(journal: Journal, server: Server) -> None:
    """For ever: while the database is silent, let nobody wait for more than ``answer_seconds``.

    What becomes of such a call is not known: its caller repeats it, and gets its first answer where it was carried out.
    """

    async def look() -> None:
        overdue = journal.overdue
        if overdue is not None:
            server.give_up(journal.answer_seconds, overdue)
            # It may have stopped reading, as too much waits to be committed.
            server.resume()

    await every(LOOK_SECONDS, look)
