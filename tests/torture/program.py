"""A program of the run, which is started, struck, started again and ended."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import Process

CHECKOUT = Path(__file__).parents[2]
LEASH = Path(__file__).with_name("leash.py")
STEP_SECONDS = 0.02
READY_SECONDS = 60.0
"""More than a broker takes to start on a busy machine, and while its database comes back."""


class Program:
    """A program, which leaves what it says in a file.

    Args:
        name: what to call it.
        command: its command line, with a full path at its beginning.
        folder: for its file, ``NAME.log``.

    Attributes:
        should_run: whether nobody here has ended it.
        may_end_with: the exit codes with which it may end by itself; it is started again.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.should_run = False
        self.may_end_with: frozenset[int] = frozenset()
        self._command = command
        self._output = folder / f"{name}.log"
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.runs

    async def start(self) -> None:
        """Start it."""
        self._spawn()
        self.should_run = True

    def _spawn(self) -> None:
        # A file and no module, which would import the package that it is in.
        leash = [sys.executable, "-S", "-E", str(LEASH), str(os.getpid())]
        self._process = Process(*leash, *self._command, output=self._output, cwd=CHECKOUT)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self._process is not None and self._process.runs:
            self._process.signal(number)

    def kill(self) -> None:
        """End it on the spot."""
        self.should_run = False
        if self._process is not None:
            self._process.kill()

    async def end(self, seconds: float) -> int | None:
        """Ask it to end; its exit code, or None where it did not in that time and was killed."""
        self.should_run = False
        self.signal(signal.SIGTERM)
        code = await self.ended(seconds)
        self.kill()
        return code

    async def ended(self, seconds: float) -> int | None:
        """Its exit code, once it has ended; None where it has not within that time."""
        assert self._process is not None
        try:
            return await asyncio.to_thread(self._process.wait, seconds)
        except subprocess.TimeoutExpired:
            return None


class Broker(Program):
    """The broker: it has started when it says that it is ready.

    Args:
        command: its command line, without the ready file.
        folder: for its files.
        name: what to call it.

    Attributes:
        peak_rss_mib: the most memory that it was seen to take, over all its starts.
        failed_starts: how often it ended before it was ready.
    """

    def __init__(self, command: Sequence[str], folder: Path, name: str = "broker") -> None:
        self._ready_file = folder / f"{name}-ready.json"
        super().__init__(name, [*command, "--ready-file", str(self._ready_file)], folder)
        self.peak_rss_mib = 0.0
        self.failed_starts = 0

    async def start(self) -> None:
        """Start it, again where it ends at once as its database is away, and come back when it is ready.

        What happened before gives it no reason any more to end by itself.

        Raises:
            TimeoutError: it never is.
        """
        self._ready_file.unlink(missing_ok=True)
        async with asyncio.timeout(READY_SECONDS):
            self._spawn()
            while not self._is_ready():
                if not self.runs:
                    self.failed_starts += 1
                    await asyncio.sleep(10 * STEP_SECONDS)
                    self._spawn()
                await asyncio.sleep(STEP_SECONDS)
        self.should_run, self.may_end_with = True, frozenset()

    def kill(self) -> None:
        """End it on the spot."""
        self.sample()
        super().kill()

    def sample(self) -> None:
        """Look how much memory it takes."""
        if not self.runs:
            return
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return  # it ends just now
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                self.peak_rss_mib = max(self.peak_rss_mib, int(line.split()[1]) / 1024)

    def _is_ready(self) -> bool:
        try:
            return bool(json.loads(self._ready_file.read_text())["pid"] == self.pid)
        except (OSError, ValueError):
            return False  # not there, or half written
