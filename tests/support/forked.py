"""Starts our programs as forks of a process that has imported them already.

Every start of a broker or a command imports the same modules, which takes a second of processor time; hundreds of tests
start some. The **nursery** is a process that has imported them and does nothing else. It forks itself for each program,
and the fork runs the installed script, in a session, a folder and an environment of its own.

A program that must begin as an ordinary user's begins is started by its path: see ``Process`` in ``processes``.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NoReturn

from tests.support import cheap_passwords, compiled
from xbus.testing import Bus
from xbus.testing.journal import compiled_statements

PACKAGES = tuple(
    f"xbus.{name}"
    for name in ("admin", "bots", "broker", "emitter", "http", "monitor", "reader", "recipient", "supervision")
)
MODULES = ("sqlalchemy.dialects.sqlite.pysqlite", "sqlalchemy.dialects.postgresql.psycopg2", "psycopg2.extras")
SCRIPTS = ("setup_xbusbroker", "start_xbusbroker", "start_xbushttp", "start_xbusmonitor", "xbus")

OF_ALL_TESTS = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
"""The first is set for the nursery and all programs of tests, the second for none."""

ANEW = {"PYTHONNOUSERSITE": "1"}
"""An environment in which a program begins anew, as an ordinary user's does, and hashes passwords at their price."""

_NUMBER = struct.Struct("!i")
_MOST_BYTES = 1 << 17


def can_start(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Check whether a fork of the nursery does the same as a program that begins anew."""
    path = Path(command[0])
    is_ours = path.parent == Path(sys.executable).parent and path.name in SCRIPTS
    return is_ours and all(env.get(name) == os.environ.get(name) for name in {*env, *os.environ} if _is_early(name))


def _is_early(name: str) -> bool:
    """Check whether a variable decides how Python itself begins."""
    return name.startswith(("PYTHON", "LC_", "LANG", "LD_", "TZ")) and name not in OF_ALL_TESTS


class ForkedProgram:
    """A program that runs as a fork of the nursery; it is used as ``subprocess.Popen`` is.

    Args:
        command: the path of an installed script, and its arguments.
        streams: its standard input, output and error.
    """

    def __init__(
        self, command: Sequence[str], streams: Sequence[IO[bytes]], cwd: Path | None, env: Mapping[str, str]
    ) -> None:
        self.args = [*command]
        self.returncode: int | None = None
        self._told, telling = os.pipe()
        request = json.dumps([self.args, str(cwd or Path.cwd()), dict(env)]).encode()
        socket.send_fds(_nursery(), [request], [*(stream.fileno() for stream in streams), telling])
        os.close(telling)
        self.pid = self._next_number()

    def poll(self) -> int | None:
        """Give its exit code, or None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and give its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _end(self) -> None:
        self.returncode = self._next_number()
        os.close(self._told)

    def _next_number(self) -> int:
        (number,) = _NUMBER.unpack(os.read(self._told, _NUMBER.size))
        assert isinstance(number, int)
        return number


@cache
def _nursery() -> socket.socket:
    """Start the nursery of this process; it ends when this process has ended."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XBUS_")}
    with its:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", __name__, str(its.fileno())],
            cwd=Path(__file__).parents[2],
            env=environment,
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end, ours, process)
    return ours


def _end(requests: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    requests.close()
    process.wait()


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request; come back in the fork with the words of its command, and with None at the end."""
    while True:
        request, fds, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
        if not request:
            return None
        if os.fork() == 0:
            requests.close()
            return _begin(request, fds)
        for fd in fds:
            os.close(fd)


def _begin(request: bytes, fds: Sequence[int]) -> list[str]:
    """Fork again: one process becomes the program, the other one waits for its end and tells its exit code."""
    telling = fds[-1]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for fd in fds[:-1]:
            os.close(fd)
        _, status = os.waitpid(pid, 0)
        os.write(telling, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os._exit(0)
    os.setsid()
    os.write(telling, _NUMBER.pack(os.getpid()))
    for number, fd in enumerate(fds[:-1]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    command, cwd, env = json.loads(request)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    return [str(word) for word in command]


def _run(command: Sequence[str]) -> None:
    """Run a script as Python does when it begins with it."""
    sys.argv = [*command]
    sys.path[0] = str(Path(command[0]).parent)
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as ending:
        if isinstance(ending.code, int):
            _leave(ending.code)
        raise


def _leave(exit_code: int) -> NoReturn:
    """Do what Python does at the end of a program, but for taking down its modules.

    That takes fifteen times as long as a fork, as it writes to every page that the fork shares with the nursery.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as multiprocessing has it do in forks
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _compile_statements() -> None:
    """Have a bus in memory deliver an envelope: forks find compiled what a broker begins with, a third of its start."""
    compiled.share(setattr, compiled_statements())
    with Bus() as bus:
        bus.type("any").to("noting")
        bus.emit("any", [1])
        bus.run()


def _main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # a collection while modules are imported walks through all of them
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                # An environment without an extra lacks packages that its modules import.
                with suppress(ModuleNotFoundError):
                    importlib.import_module(found.name)
    for module in MODULES:
        importlib.import_module(module)
    cheap_passwords.use()
    _compile_statements()
    gc.collect()
    gc.enable()
    gc.freeze()  # a collection in a fork would copy every page that all share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if (command := _serve(requests)) is not None:
        _run(command)


if __name__ == "__main__":
    _main()
