"""A program of the run, which is started, struck, started again and ended."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.daemon import Options, write_config
from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.torture import clocks
from tests.torture.proxy import Proxy

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
        output: the file.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.should_run = False
        self.may_end_with: frozenset[int] = frozenset()
        self._command = command
        self.output = folder / f"{name}.log"
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

    def _spawn(self, *more: str) -> None:
        # A file and no module, which would import the package that it is in.
        leash = [sys.executable, "-S", "-E", str(LEASH), str(os.getpid())]
        self._process = Process(*leash, *self._command, *more, output=self.output, cwd=CHECKOUT)

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
    """A broker: it has started when it says that it is ready, or that it stands by for another one.

    Args:
        folder: for its files.
        name: what to call it.
        url: the database, as it is to reach it.
        options: of its configuration.
        proxy: its way to the database, where one leads there.
        stands_by: whether it stands by while another one leads.
        ahead: the seconds by which its clock is ahead.

    Attributes:
        ports: of its front and its back, by name.
        peak_rss_mib: the most memory that it was seen to take, over all its starts.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        url: str,
        options: Options,
        proxy: Proxy | None = None,
        *,
        stands_by: bool,
        ahead: int = 0,
    ) -> None:
        self.ports = {"front": free_port(), "back": free_port()}
        sockets = {f"{part}socket": f"tcp://127.0.0.1:{port}" for part, port in self.ports.items()}
        config = write_config(folder / f"{name}.ini", url, {**options, "broker": {"name": name}, "zmq": sockets})
        self._ready_file = folder / f"{name}-ready.json"
        command = [*clocks.ahead(ahead, folder), script("start_xbusbroker"), "-c", str(config)]
        command += ["--ready-file", str(self._ready_file)]
        super().__init__(name, command, folder)
        self.proxy = proxy
        self.stands_by = stands_by
        self.peak_rss_mib = 0.0
        self._started = 0.0
        self._said_before = 0
        """The bytes in the file of what it said at its earlier starts."""

    async def start(self, *, stands_by: bool | None = None) -> None:
        """Start it, again where it ends at once as its database is away, and come back when it is ready or stands by.

        What happened before gives it no reason any more to end by itself.

        Args:
            stands_by: whether it does so this time, where that is not as usual.

        Raises:
            TimeoutError: it is neither.
        """
        flag = ["--standby"] if (self.stands_by if stands_by is None else stands_by) else []
        self._ready_file.unlink(missing_ok=True)
        async with asyncio.timeout(READY_SECONDS):
            self._spawn(*flag)
            while not self.is_ready and not (flag and self._has_said(b"standing by")):
                if not self.runs:
                    await asyncio.sleep(10 * STEP_SECONDS)
                    self._spawn(*flag)
                await asyncio.sleep(STEP_SECONDS)
        self.should_run, self.may_end_with = True, frozenset()

    def _spawn(self, *more: str) -> None:
        self._said_before = self.output.stat().st_size if self.output.exists() else 0
        self._started = time.monotonic()
        super()._spawn(*more)

    @property
    def is_ready(self) -> bool:
        """Whether it serves all."""
        try:
            return bool(self.runs and json.loads(self._ready_file.read_text())["pid"] == self.pid)
        except (OSError, ValueError):
            return False  # not there, or half written

    @property
    def leads_since(self) -> float | None:
        """When it was started that leads now, in seconds; None where it has not begun to lead."""
        leads = self.is_ready or (self.runs and self._has_said(b"this broker leads"))
        return self._started if leads else None

    def _has_said(self, what: bytes) -> bool:
        with self.output.open("rb") as said:
            said.seek(self._said_before)
            return what in said.read()

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
