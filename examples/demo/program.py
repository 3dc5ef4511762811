"""A program that runs beside the demo, and ends with it."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.demo.failure import DemoFailed

STOP_SECONDS = 15.0
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Program:
    """A process of its own; in a session of its own too, so that Ctrl-C reaches the demo alone, which then ends it.

    Args:
        name: what to call it, also in the name of the file that collects what it writes.
        command: the program and its arguments.
        folder: its working directory.
        environment: all of it.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Let a program pass that runs.

        Raises:
            DemoFailed: it has ended.
        """
        code = self._process.poll()
        if code is not None:
            raise DemoFailed(f"{self.name} ended by itself with exit code {code}: {self.log} says why")

    def ask_to_stop(self) -> None:
        """Tell it to finish what it does and end."""
        self._process.terminate()

    def has_stopped(self) -> bool:
        """Wait until it has ended; one that takes too long is ended by force. True where all went well."""
        try:
            return self._process.wait(STOP_SECONDS) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False


def script(name: str) -> str:
    """The path of a program of Xbus, which is beside the Python that runs this."""
    return str(Path(sys.executable).with_name(name))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let an interruption wait until the block is over: between starting a program and knowing of it, and while
    programs are being ended, which takes bounded time anyway."""
    came: list[int] = []
    previous = {number: signal.signal(number, lambda number, _: came.append(number)) for number in INTERRUPTIONS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
