"""Reports in health that the journal went back, until a person acknowledges it."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations import losses
from xbus.errors import JournalError
from xbus.periodic import every
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

CODE = "journal_went_back"

NEXT_STEP = "find out what emitters and recipients lack, then xbus journal acknowledge"

LOOK_SECONDS = 5.0
"""Seconds between two looks for losses. Fewer end the problem sooner once somebody has acknowledged it."""


async def take_over(journal: Journal, files: Sequence[Path]) -> None:
    """Make the rows of losses that only files have. The front knows by them which open envelopes may lack items.

    Raises:
        JournalError: the database takes no row now.
    """
    for file in files:
        try:
            found = await asyncio.to_thread(losses.read_file, file)
            if found:
                await journal.run(losses.take_over, found)
                await asyncio.to_thread(file.unlink, missing_ok=True)
        except OSError as error:
            log.warning("a file of losses can't be read: %s", error, extra={"action": "unread"})


async def tell_losses(journal: Journal, health: Health, files: Sequence[Path]) -> None:
    """Report, for ever, what the journal has lost and nobody has acknowledged.

    Args:
        files: have the losses that could not be written into the journal.
    """

    async def look() -> None:
        try:
            await take_over(journal, files)
            lost = await journal.read(losses.read_open)
        except JournalError as error:
            log.info("losses of the journal not looked at: %s", error, extra={"action": "unread"})
            return
        if lost:
            more = f", and {len(lost) - 1} times more since then" if len(lost) > 1 else ""
            health.trouble(CODE, f"the journal went back: {lost[0]}{more}", NEXT_STEP, since=lost[0].at)
        else:
            health.over(CODE)

    await every(LOOK_SECONDS, look)
