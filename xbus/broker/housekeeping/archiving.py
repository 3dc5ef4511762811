"""Has settled events archived that are old enough, by a command, and names the one that restores: the broker knows no
Parquet."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from xbus.broker.housekeeping.commands import CommandRunner
from xbus.broker.journal.archive.plans import has_archivable
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention.rules import read_keepings, way_to_archive
from xbus.clock import Clock
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

LOOK_SECONDS = 600.0
"""Seconds between looks for what is old enough. Smaller archives sooner, in more and smaller files."""

CODE = "archive_failed"


def archive_command(config_file: Path | None) -> tuple[str, ...]:
    """Give the command that archives what is due.

    Args:
        config_file: the broker's; None if it runs without one: the command inherits the environment.
    """
    # -P: a module that lies in the folder where the broker was started must not be taken for one of ours.
    command = (sys.executable, "-P", "-m", "xbus.admin", "archive", "--due")
    return command if config_file is None else (*command, "-c", str(config_file))


def restore_command(config_file: Path | None) -> tuple[str, ...]:
    """Give the command that restores envelopes; the caller adds their ids.

    Args:
        config_file: the broker's; None if it runs without one: the command inherits the environment.
    """
    # -P: a module that lies in the folder where the broker was started must not be taken for one of ours.
    command = (sys.executable, "-P", "-m", "xbus.admin", "restore")
    return command if config_file is None else (*command, "-c", str(config_file))


class ArchiveKeeper:
    """Archives now and then, by one process at a time.

    Args:
        journal: says what is old enough.
        clock: measures ages.
        health: shows why nothing is archived.
        place: where the archive is; empty for none.
        command: archives.
    """

    def __init__(self, journal: Journal, clock: Clock, health: Health, place: str, command: Sequence[str]) -> None:
        self._journal = journal
        self._clock = clock
        self._health = health
        self._place = place
        self._command = command
        self._runner = CommandRunner()

    async def look(self) -> None:
        """Archive what is due, if anything is.

        Raises:
            JournalError: the database does not do it now.
        """
        scan = way_to_archive(await self._journal.read(read_keepings), self._clock.now())
        if scan is None or not await self._journal.read(has_archivable, scan):
            self._health.over(CODE)
        elif not self._place:
            cause = "event types set archive_after, and the configuration names no place for the archive"
            self._health.trouble(
                CODE, cause, "set [journal] archive to a folder or an address, and start the broker anew"
            )
        else:
            await self._archive()

    async def _archive(self) -> None:
        try:
            why = await self._runner.run(*self._command)
        except OSError as error:
            why = str(error)
        if why:
            # Health answers everybody, and the words of a storage may name places and users.
            log.warning("nothing archived: %s", why, extra={"action": CODE})
            cause = "the command that archives settled events failed"
            self._health.trouble(CODE, cause, "see the log at action=archive_failed, or run xbus archive --due")
        else:
            self._health.over(CODE)
