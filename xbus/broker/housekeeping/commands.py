"""Runs a command as a process of its own, one at a time: some work has no place in the broker's process."""

import asyncio
import signal
from contextlib import suppress

INTERRUPT_SECONDS = 5.0
"""Seconds that the command has for an orderly end before it is killed. The journal loses nothing either way."""

KILLED_SECONDS = 1.0
"""Seconds for which the broker checks whether a killed command is gone. A storage may keep it for longer."""


class CommandRunner:
    """Runs commands, and leaves none behind.

    Args:
        interrupt_seconds: seconds that a command has for an orderly end.
    """

    def __init__(self, interrupt_seconds: float = INTERRUPT_SECONDS) -> None:
        self._interrupt_seconds = interrupt_seconds
        self._running: asyncio.subprocess.Process | None = None
        self.given_up = False

    async def run(self, *command: str) -> str:
        """Run a command to its end; why it failed, or nothing where it did not.

        Raises:
            OSError: it can't be started.
        """
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
            if self.given_up:
                self._interrupt()
            _, complaint = await running.communicate()
        except asyncio.CancelledError:
            with suppress(OSError):  # it could not be started
                self._running = await starting
                await self._end(self._running)
            raise
        return _failure(running.returncode or 0, complaint.decode(errors="replace").strip())

    def give_up(self) -> None:
        """Cancel the running command, and each that is started from now on."""
        self.given_up = True
        self._interrupt()

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
