"""Keeps imprints of rarely written rows, so that an examination of the journal finds rows that damage has changed."""

from xbus.broker.journal.imprints import keep_imprints, make_imprints
from xbus.broker.journal.journal import Journal

LOOK_SECONDS = 10.0
"""Seconds between looks for a new version. Smaller leaves less time without imprints, and reads all tables more often
while programs make topics one after another."""


async def renew_imprints(journal: Journal) -> None:
    """Make imprints of the tables whose present version has none. Rows are read beside those who write.

    Raises:
        JournalError: the database does not do it.
    """
    found = await journal.read(make_imprints)
    if found:
        await journal.run(keep_imprints, found)
