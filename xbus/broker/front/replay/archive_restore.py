"""Restores archived envelopes that an emitter asks for, by a command: the broker knows no Parquet."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.archive.reading import archived_bytes
from xbus.broker.journal.journal import Journal
from xbus.errors import Failed

log = logging.getLogger(__name__)

INTERRUPT_SECONDS = 5.0
"""Seconds that the command has for an orderly end before it is killed. The journal loses nothing either way."""

KILLED_SECONDS = 1.0
"""Seconds for which the front checks whether a killed command is gone. A storage may keep it for longer."""


def restore_command(config_file: Path | None) -> tuple[str, ...]:
    """Give the command that restores an envelope; the caller adds the id.

    Args:
        config_file: the broker's; None if it runs without one: the command inherits the environment.
    """
    # -P: a module that lies in the folder where the broker was started must not be taken for one of ours.
    command = (sys.executable, "-P", "-m", "xbus.admin", "restore")
    return command if config_file is None else (*command, "-c", str(config_file))


class ArchiveRestore:
    """Restores archived envelopes, one at a time, each by a process of its own.

    Args:
        journal: entered; says which envelopes are archived, before and after.
        space: says whether the journal has space for more.
        command: called with the envelope's id; empty if nothing can be restored.
        interrupt_seconds: seconds that it has for an orderly end.
    """

    def __init__(
        self, journal: Journal, space: Space, command: Sequence[str], interrupt_seconds: float = INTERRUPT_SECONDS
    ) -> None:
        self._journal = journal
        self._space = space
        self._command = command
        self._interrupt_seconds = interrupt_seconds
        self._one_at_a_time = asyncio.Lock()
        self._running: asyncio.subprocess.Process | None = None
        self._given_up = False

    async def bring_back(self, envelope_id: UUID) -> None:
        """Return when the items of an archived envelope are in the journal, whoever restored them.

        Raises:
            Failed: the items can't be restored now (``envelope_archived``), or have no space (``journal_full``).
            JournalUnavailable: the database can't be read now.
        """
        async with self._one_at_a_time:
            data_bytes = await self._journal.read(archived_bytes, envelope_id)
            if data_bytes is None:
                return
            # Items that were restored a moment ago count, too.
            await self._space.refresh()
            self._space.check_back(data_bytes)
            if self._command and not self._given_up:
                await self._restore(envelope_id)
            if await self._journal.read(archived_bytes, envelope_id) is not None:
                raise _still_archived(envelope_id)

    def give_up(self) -> None:
        """Restore nothing any more; cancel the running command, and answer its call so."""
        self._given_up = True
        self._interrupt()

    async def _restore(self, envelope_id: UUID) -> None:
        told = {"action": "restore", "envelope_id": envelope_id}
        log.info("an archived envelope is put back, as it is to come again", extra=told)
        try:
            why = await self._run(*self._command, str(envelope_id))
        except OSError as error:
            why = str(error)
        if why:
            log.warning("envelope %s can't be put back: %s", *(envelope_id, why), extra=told)

    async def _run(self, *command: str) -> str:
        """Run a command to its end; why it failed, or nothing where it did not."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        )
        try:
            # Shielded: asyncio kills a command whose start is cancelled, and this one may be at work already.
            self._running = running = await asyncio.shield(starting)
            if self._given_up:
                self._interrupt()
            _, complaint = await running.communicate()
        except asyncio.CancelledError:
            with suppress(OSError):  # it could not be started
                self._running = await starting
                await self._end(self._running)
            raise
        return _failure(running.returncode or 0, complaint.decode(errors="replace").strip())

    async def _end(self, running: asyncio.subprocess.Process) -> None:
        """Have a command end in order; cancelled once more, it is killed."""
        self._interrupt()
        try:
            await running.communicate()
        finally:
            # Nothing may outlive the broker and keep its place.
            _kill(running)
            with suppress(TimeoutError):
                async with asyncio.timeout(KILLED_SECONDS):
                    await running.communicate()

    def _interrupt(self) -> None:
        """Ask the command to end in order; kill it if its storage hangs."""
        running = self._running
        if running is not None and running.returncode is None:
            running.terminate()
            asyncio.get_running_loop().call_later(self._interrupt_seconds, _kill, running)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


def _failure(exit_code: int, complaint: str) -> str:
    if exit_code < 0:
        return f"{complaint} (it was ended by signal {-exit_code}, {signal.strsignal(-exit_code)})".strip()
    return complaint or f"it ended with {exit_code}" if exit_code else ""


def _still_archived(envelope_id: UUID) -> Failed:
    """Make the answer for items that could not be restored; only the log says more, because it names places."""
    return Failed(
        f"the items of envelope {envelope_id} are in an archive, and can't be restored now",
        f"call again later; the broker's log gives the cause, and so does xbus restore {envelope_id}",
        code="envelope_archived",
    )
