"""Reports in health that the journal went back, until a person acknowledges it."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations import losses
from xbus.errors import Fenced, JournalError, JournalUnavailable
from xbus.periodic import every
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

CODE = "journal_went_back"

NEXT_STEP = "find out what emitters and recipients lack, then xbus journal acknowledge"

LOOK_SECONDS = 5.0
"""Seconds between two looks for losses. Fewer end the problem sooner once somebody has acknowledged it."""


class LossFiles:
    """The files of losses. Each trouble with a file is logged once.

    Args:
        journal: takes the rows.
        files: have the losses that could not be written into the journal.
    """

    def __init__(self, journal: Journal, files: Sequence[Path]) -> None:
        self._journal = journal
        self._files = files
        self._told: set[str] = set()

    async def take_over(self) -> None:
        """Make the rows of losses that only files have. The front knows by them which open envelopes may lack items.

        A file stays while the journal refuses one of its losses.

        Raises:
            JournalUnavailable: the database takes no row now.
            Fenced: this process may write no more.
        """
        for file in self._files:
            try:
                found = await asyncio.to_thread(losses.read_file, file)
                # A loss that is refused must keep no other one out.
                if found and all([await self._is_taken(loss, file) for loss in found]):
                    await asyncio.to_thread(file.unlink, missing_ok=True)
            except OSError as error:
                self._tell(f"a file of losses can't be read or removed: {error}")

    async def _is_taken(self, loss: losses.Loss, file: Path) -> bool:
        try:
            await self._journal.run(losses.take_over, [loss])
        except (JournalUnavailable, Fenced):
            raise
        except JournalError as error:
            self._tell(f"the journal refuses a loss, mend or remove its line in {file}: {error}")
            return False
        return True

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told:
            self._told.add(trouble)
            log.error("%s", trouble, extra={"action": "loss_not_noted"})


async def tell_losses(journal: Journal, health: Health, files: LossFiles) -> None:
    """Report, for ever, what the journal has lost and nobody has acknowledged.

    Args:
        files: have the losses that could not be written into the journal.
    """

    async def look() -> None:
        try:
            await files.take_over()
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
