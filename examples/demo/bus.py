"""Sets a bus up and starts its programs, by the commands that every user has."""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from examples.demo.failure import DemoFailed
from examples.demo.program import Program, script, uninterrupted

CHECKOUT = Path(__file__).parents[2]
EMITTER = "airport_1"
RUN = ("xbus", "recipient", "run")
READY_SECONDS = 30.0
DELIVERY_SECONDS = 300.0
STEP_SECONDS = 0.25

CONFIG = """\
[database]
sqlalchemy.dburi = {database}

[zmq]
frontsocket = tcp://127.0.0.1:0
backsocket = tcp://127.0.0.1:0
"""


@dataclass(frozen=True)
class Plan:
    """Which bus to run.

    Attributes:
        file: what ``xbus apply`` reads.
        recipients: the program of each login, with its arguments but for the login and the broker's address.
    """

    file: Path
    recipients: Mapping[str, Sequence[str]]


class Bus:
    """A bus with all its programs, from ``with`` to the end of the block.

    Args:
        folder: for everything that the programs write; exists, and is empty.
        database: the URL of the journal.
        plan: which bus it is.
    """

    def __init__(self, folder: Path, database: str, plan: Plan) -> None:
        self.folder = folder
        self._plan = plan
        self.config = folder / "config.ini"
        self.config.write_text(CONFIG.format(database=database))
        self.password = secrets.token_urlsafe()
        """That of every login of this bus."""
        self.front = ""
        """Where emitters connect to."""
        self._programs: list[Program] = []

    def set_up(self) -> None:
        """Make the journal's tables, apply the bus file, and let everybody in."""
        self._run("setup_xbusbroker", "-c", str(self.config))
        self._run("xbus", "apply", str(self._plan.file))
        for kind, login in (("emitter", EMITTER), *(("role", login) for login in self._plan.recipients)):
            self._run("xbus", "password", kind, login, "--stdin", given=self.password)

    def __enter__(self) -> "Bus":
        try:
            self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not isinstance(error, KeyboardInterrupt):
                self.check()  # a program that has died tells more than what came of it
        finally:
            failed = self._stop_all()
        if failed and error is None:
            raise DemoFailed(f"not ended well: {', '.join(failed)}; see the logs in {self.folder}")

    def check(self) -> None:
        """Let a bus pass whose programs all run.

        Raises:
            DemoFailed: one of them has ended.
        """
        for program in self._programs:
            program.check()

    def wait_until_delivered(self, envelope_id: str) -> None:
        """Come back when every consumer has got the envelope.

        Raises:
            DemoFailed: one of them never will, or not in time, or a program has ended.
        """

        def is_delivered() -> bool:
            consumers = json.loads(self._run("xbus", "envelope", "show", envelope_id, "--json"))["roles"]
            for consumer in consumers:
                if consumer["state"] == "parked":
                    raise DemoFailed(f"{consumer['role']} can't take the envelope: {consumer['cause']}")
            return all(consumer["state"] == "done" for consumer in consumers)

        self._wait_until(is_delivered, "everything is delivered", DELIVERY_SECONDS)

    def _start_all(self) -> None:
        ready = self.folder / "ready.json"
        self._start("broker", "start_xbusbroker", "-c", str(self.config), "--ready-file", str(ready))
        self._wait_until(ready.exists, "the broker is ready", READY_SECONDS)
        addresses: dict[str, Any] = json.loads(ready.read_text())
        self.front = addresses["front"]
        for login, (program, *arguments) in self._plan.recipients.items():
            self._start(login, program, *arguments, "--login", login, "--back", addresses["back"])

    def _stop_all(self) -> list[str]:
        """End the recipients, then the broker; the names of those that did not end well."""
        broker, recipients = self._programs[:1], self._programs[1:]
        with uninterrupted():
            return [program.name for group in (recipients, broker) for program in _stopped_badly(group)]

    def _wait_until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {seconds:.0f} s until {what}, in vain: see the logs in {self.folder}")
            time.sleep(STEP_SECONDS)

    def _start(self, name: str, program: str, *arguments: str) -> None:
        with uninterrupted():
            self._programs.append(Program(name, [script(program), *arguments], self.folder, self._environment()))

    def _run(self, program: str, *arguments: str, given: str = "") -> str:
        """Run a program to its end; what it wrote."""
        command = [script(program), *arguments]
        environment = self._environment()
        done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DemoFailed(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "XBUS_CONFIG": str(self.config),
            "XBUS_PASSWORD": self.password,
            "PYTHONPATH": str(CHECKOUT),
        }


def _stopped_badly(programs: list[Program]) -> list[Program]:
    for program in programs:
        program.ask_to_stop()
    return [program for program in programs if not program.has_stopped()]
