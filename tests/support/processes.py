"""Programs as their users run them: in processes of their own, each ended by the test that started it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from tests.support.forked import ForkedProgram, can_start

DEADLINE_SECONDS = 180.0
"""Many times as long as any of them takes, because other tests may keep the machine busy."""


def script(name: str) -> str:
    """The path of an installed console script, such as ``setup_xbusbroker``."""
    return str(Path(sys.executable).with_name(name))


def module(name: str) -> list[str]:
    """The start of a command line that runs a module, as ``python -m name``."""
    return [sys.executable, "-m", name]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a program, without what the person who runs the tests has set for the bus."""
    # A program that may not keep what it has compiled compiles it at each start, which takes as long as all the rest.
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("XBUS_") and key != "PYTHONDONTWRITEBYTECODE"
    }
    return {**inherited, "PYTHONUNBUFFERED": "1", **(extra or {})}


def run(
    *command: str | Path,
    cwd: Path | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    timeout: float = DEADLINE_SECONDS,
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end; its exit code is for the caller to judge."""
    words, variables = [str(part) for part in command], environment(env)
    if can_start(words, variables):
        return _run_forked(words, cwd, stdin, variables, timeout)
    return subprocess.run(
        words, cwd=cwd, input=stdin, env=variables, timeout=timeout, capture_output=True, text=True, check=False
    )


def _run_forked(
    command: list[str], cwd: Path | None, stdin: str, env: dict[str, str], timeout: float
) -> "subprocess.CompletedProcess[str]":
    with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        program = ForkedProgram(command, [given, output, errors], cwd, env)
        try:
            exit_code = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGKILL)
            program.wait()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, exit_code, output.read().decode(), errors.read().decode())


def _started(
    command: list[str], output: Path, cwd: Path | None, env: dict[str, str]
) -> "subprocess.Popen[bytes] | ForkedProgram":
    with Path(os.devnull).open("rb") as nothing, output.open("ab") as sink:
        if can_start(command, env):
            return ForkedProgram(command, [nothing, sink, sink], cwd, env)
        return subprocess.Popen(
            command, cwd=cwd, env=env, stdin=nothing, stdout=sink, stderr=sink, start_new_session=True
        )


class Process:
    """A program that runs beside the test.

    Args:
        command: the program and its arguments.
        output: the file that collects what it writes, standard output and standard error together.
    """

    def __init__(
        self, *command: str | Path, output: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.output = output
        self._process = _started([str(part) for part in command], output, cwd, environment(env))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        """What it has written so far."""
        return self.output.read_text(errors="replace")

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float = DEADLINE_SECONDS) -> int:
        """Its exit code, once it has ended by itself."""
        return self._process.wait(timeout)

    def stop(self, timeout: float = DEADLINE_SECONDS) -> int:
        """Ask it to end as an operator would, with SIGTERM, and give its exit code."""
        if self.runs:
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """End it on the spot, and what it has started; they can do nothing about it."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # all of them have ended by themselves
            pass
        self._process.wait()
