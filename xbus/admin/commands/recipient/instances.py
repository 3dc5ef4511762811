"""Runs several processes of one recipient, and ends them together."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

from xbus import logs
from xbus.admin.commands.recipient.loading import load_recipient
from xbus.config import load_or_default
from xbus.errors import ConfigurationError
from xbus.recipient import run
from xbus.recipient.running import ServeOptions

log = logging.getLogger(__name__)

KILLED = 1
"""The exit code where a process was killed: another try may go well, and a person should see why."""


@dataclass(frozen=True)
class Instance:
    """The values with which one process serves the role; they can be sent to another process.

    Args:
        name: the recipient, as ``module:Class``.
        back_url: the address of the back.
        login: the role's login.
        password: the role's password.
        options: how it is served.
        config_path: the configuration file, which says how to log.
    """

    name: str
    back_url: str
    login: str
    password: str
    options: ServeOptions
    config_path: Path | None

    def serve(self) -> None:
        """Serve the role until SIGTERM or SIGINT, or until the process that started this one is gone."""
        threading.Thread(target=_end_with_parent, daemon=True).start()
        kind = load_recipient(self.name)
        logs.set_up(load_or_default(self.config_path).logging)
        run(kind, self.back_url, self.login, self.password, **self.options)


def check_addresses(options: ServeOptions) -> None:
    """Let addresses pass that several processes can have.

    Raises:
        ConfigurationError: they would all listen at the same one.
    """
    bind, advertise = options.get("bind"), options.get("advertise")
    if bind is not None and not bind.endswith(":*"):
        raise ConfigurationError(
            f"several processes can't listen at {bind}", "let --bind end with :*, so that each takes a port of its own"
        )
    if advertise is not None and "{port}" not in advertise:
        raise ConfigurationError(
            f"several processes can't be called at {advertise}", "write {port} in --advertise: the port of each"
        )


def run_instances(instance: Instance, number: int) -> None:
    """Run some processes until SIGTERM or SIGINT, or until one ends with an error. Then end all of them.

    Raises:
        SystemExit: with the code of the first that ended with an error.
    """
    context = get_context("spawn")
    processes = [context.Process(target=instance.serve, name=f"instance {each}") for each in range(1, number + 1)]

    ending = threading.Event()

    def end_all(*_: int | FrameType | None) -> None:
        ending.set()
        for process in processes:
            if process.is_alive():
                process.terminate()

    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, end_all)
    for process in processes:
        if not ending.is_set():
            process.start()
    code = 0
    while alive := [process for process in processes if process.is_alive()]:
        # All others have an exit code now. A process that is killed closes its sentinel before it has one.
        code = code or _first_code(processes)
        if code:
            end_all()
        wait([process.sentinel for process in alive])
    sys.exit(code or _first_code(processes))


def _first_code(processes: Iterable[SpawnProcess]) -> int:
    """Give the code of the first process that has ended with an error; 0 if none has."""
    return next(filter(None, map(_code, processes)), 0)


def _code(process: SpawnProcess) -> int:
    """Give the exit code of a process that has ended with an error; 0 for any other."""
    if process.exitcode in (None, 0, -signal.SIGTERM):
        return 0
    log.error("%s ended with code %s", process.name, process.exitcode, extra={"action": "instance_ended"})
    return max(process.exitcode or 0, KILLED)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
