"""Archived envelopes that an emitter asks for are put back by the command for that: the broker knows no Parquet."""

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
"""How long the command may take to end in order when it is told to, before it is killed; nothing is lost either way."""

KILLED_SECONDS = 1.0
"""How long it is looked whether one that was killed is gone: where a storage holds it, it is not yet."""


def restore_command(config_file: Path | None) -> tuple[str, ...]:
    """What puts an envelope back, its id to be added.

    Args:
        config_file: the broker's; None where it runs without one, and nothing can be put back.
    """
    if config_file is None:
        return ()
    # -P: a module that lies in the folder where the broker was started must not be taken for one of ours.
    return (sys.executable, "-P", "-m", "xbus.admin", "restore", "-c", str(config_file))


class ArchiveRestore:
    """Puts archived envelopes back, one at a time, each by a process of its own.

    Args:
        journal: entered; says what is archived, before and after.
        space: says whether there is space for more.
        command: called with the envelope's id; none where nothing can be put back.
        interrupt_seconds: how long it may take to end in order.
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
        """Return when the items of an archived envelope are in the journal, whoever put them there.

        Raises:
            Failed: they can't be put back now (``envelope_archived``), or there is no space (``journal_full``).
            JournalUnavailable: the database can't be read now.
        """
        async with self._one_at_a_time:
            data_bytes = await self._journal.read(archived_bytes, envelope_id)
            if data_bytes is None:
                return
            # What was put back a moment ago counts, too.
            await self._space.refresh()
            self._space.check_back(data_bytes)
            if self._command and not self._given_up:
                await self._restore(envelope_id)
            if await self._journal.read(archived_bytes, envelope_id) is not None:
                raise _still_archived(envelope_id)

    def give_up(self) -> None:
        """Put nothing back any more; what is at work is broken off, and its call answered so."""
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
        """Tell what is at work to end in order; what does not, as its storage hangs, is killed."""
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
    """The answer where the items of an envelope could not be put back: only the log says more, as it names places."""
    return Failed(
        f"the items of envelope {envelope_id} are in an archive, and can't be put back now",
        f"call again later; the broker's log says why, and so does xbus restore {envelope_id}",
        code="envelope_archived",
    )
