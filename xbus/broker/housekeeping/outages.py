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
    """Report in health, for ever, while no write succeeds; the first successful write ends the problem."""
    logged = False

    async def look() -> None:
        nonlocal logged
        outage, overdue = journal.outage, journal.overdue
        if outage is None:
            health.over(CODE)
        elif overdue is not None:
            health.trouble(CODE, overdue.cause, overdue.next_step)
        else:
            # The words of the database may reveal its address and its user, and health answers everybody.
            health.trouble(CODE, "the database can't be written now", "see that it runs and has room, and the log")
            if not logged:
                log.warning("nothing can be written: %s", outage, extra={"action": "journal_unavailable"})
        logged = outage is not None

    await every(look_seconds, look)


async def answer_overdue(journal: Journal, server: Server) -> None:
    """Refuse calls, for ever, that have waited for ``answer_seconds`` while the database is silent.

    The outcome of such a call is not known. Its caller repeats it, and gets the first answer if it was carried out.
    """

    async def look() -> None:
        overdue = journal.overdue
        if overdue is not None:
            server.give_up(journal.answer_seconds, overdue)
            # It may have stopped reading, as too much waits to be committed.
            server.resume()

    await every(LOOK_SECONDS, look)
