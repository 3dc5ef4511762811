"""The processes of runs, as the runner sees them."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Collection, Mapping

from xbus.bots.job import Outcome, RunJob
from xbus.rpc.curve import KEY_VARIABLES

MOST_PRINTED_BYTES = 65_536
"""The bytes of what an attempt prints that are kept, from its end."""

CHILD = "xbus.bots.child"

CRASHED = "run_crashed"

END_SECONDS = 0.2
"""Seconds between looks at whether a process has ended while another one keeps its pipes."""

PASSED = (
    *("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"),
    *KEY_VARIABLES,
)
"""The variables of the runner's environment that a run has, too: a password of the runner is none of its business."""


def passed_on(environment: Mapping[str, str], more: Collection[str]) -> dict[str, str]:
    """Select the variables that runs have.

    Args:
        environment: that of the runner.
        more: names that a person added to ``PASSED``.
    """
    return {name: environment[name] for name in (*PASSED, *more) if name in environment}


class Printed:
    """Reads a pipe, so that nobody who prints has to wait, and keeps the end.

    Args:
        source: the number of the pipe's end; it is closed with this object.
        most: the bytes that are kept.
    """

    def __init__(self, source: int, most: int) -> None:
        self._source = source
        self._most = most
        self._kept = bytearray()
        os.set_blocking(source, False)
        asyncio.get_running_loop().add_reader(source, self._read)

    def take(self) -> str:
        """Give what was printed since the last time, with all that is in the pipe now."""
        self._read(most_reads=1000)
        found = self._kept.decode(errors="replace")
        self._kept.clear()
        return found

    def _read(self, most_reads: int = 1) -> None:
        for _ in range(most_reads):
            try:
                data = os.read(self._source, 65_536)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._source)
                return
            self._kept += data
            del self._kept[: -self._most]

    def close(self) -> None:
        """Read nothing more."""
        asyncio.get_running_loop().remove_reader(self._source)
        os.close(self._source)


class Child:
    """A process that carries out one job after the other.

    Args:
        process: its own group, so that it goes with all that it has started.
        outcomes: its answers.
        pipe: brings them.
        printed: what it prints.
    """

    def __init__(
        self, process: Process, outcomes: asyncio.StreamReader, pipe: asyncio.ReadTransport, printed: Printed
    ) -> None:
        self._process = process
        self._outcomes = outcomes
        self._pipe = pipe
        self._printed = printed

    @classmethod
    async def start(cls, environment: Mapping[str, str], module: str = CHILD) -> "Child":
        """Start a process with these variables, and no others.

        Args:
            module: what it runs.

        Raises:
            OSError: the system starts none now.
        """
        outcomes, outcomes_end = os.pipe()
        printed, printed_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, str(outcomes_end)),
                stdin=asyncio.subprocess.PIPE,
                stdout=printed_end,
                stderr=printed_end,
                pass_fds=(outcomes_end,),
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            os.close(outcomes)
            os.close(printed)
            raise
        finally:
            os.close(outcomes_end)
            os.close(printed_end)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        source = os.fdopen(outcomes, "rb")
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        return cls(process, reader, pipe, Printed(printed, MOST_PRINTED_BYTES))

    @property
    def is_alive(self) -> bool:
        """True while it takes jobs."""
        return self._process.returncode is None

    async def carry_out(self, job: RunJob) -> Outcome:
        """Have it do a job."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(job.line())
            await self._process.stdin.drain()
            if line := await self._outcome():
                return Outcome.read(line)
        except ConnectionError:
            pass
        except (TypeError, ValueError):
            # Whatever it says next could not be told from the rest of that.
            await self.kill()
            return Outcome(CRASHED, "the process of the run wrote an outcome that can't be read, and was killed")
        code = await self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        return Outcome(CRASHED, f"the process of the run {how}")

    async def _outcome(self) -> bytes:
        """Wait for the outcome of a job; nothing where the process ends without one.

        A process that it forked may keep the pipe open, so the end of the pipe alone is no sign.
        """
        reading = asyncio.ensure_future(self._outcomes.readline())
        try:
            while not reading.done():
                has_ended = not self.is_alive
                done, _ = await asyncio.wait([reading], timeout=END_SECONDS)
                if has_ended and not done:
                    return b""
            return reading.result()
        finally:
            reading.cancel()

    def take_printed(self) -> str:
        """Give what the last job has printed."""
        return self._printed.take()

    async def kill(self) -> None:
        """End it with all that it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended by itself
            pass
        await self._process.wait()

    def close(self) -> None:
        """Close the pipes of one that has ended: another process may keep their other ends."""
        self._pipe.close()
        self._printed.close()


class WarmChildren:
    """Keeps processes for the next run of their bots: the author's module is imported by then.

    Args:
        most: so many wait at the most; the one that waits longest goes first.
        environment: the variables of each.
    """

    def __init__(self, most: int, environment: Mapping[str, str]) -> None:
        self._most = most
        self._environment = environment
        self._idle: dict[Child, str] = {}

    async def get(self, work: str) -> Child:
        """Take a process that did this work before, or a new one.

        Raises:
            OSError: the system starts none now.
        """
        for child, did in reversed([*self._idle.items()]):
            if did == work:
                del self._idle[child]
                if child.is_alive:
                    return child
                child.close()
        return await Child.start(self._environment)

    async def give_back(self, child: Child, work: str) -> None:
        """Keep a process whose run has ended, if it still lives."""
        if not child.is_alive:
            await child.kill()  # what it has left behind
            child.close()
            return
        self._idle[child] = work
        while len(self._idle) > self._most:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            await oldest.kill()
            oldest.close()

    async def close(self) -> None:
        """End all that wait."""
        for child in [*self._idle]:
            del self._idle[child]
            await child.kill()
            child.close()
