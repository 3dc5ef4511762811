"""The real broker, started by a test on free ports, owned by it and ended with it."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.fsck import examined
from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.support.waiting import wait_until

READY_SECONDS = 120.0
STOP_SECONDS = 120.0

Options = Mapping[str, Mapping[str, object]]
"""Sections of the configuration with the options that differ from their defaults."""


def write_config(path: Path, url: str, options: Options | None = None) -> Path:
    """Write a configuration file for a database, with the default sockets on free ports."""
    sections: dict[str, dict[str, object]] = {
        "database": {"sqlalchemy.dburi": url},
        "zmq": {"frontsocket": "tcp://127.0.0.1:0", "backsocket": "tcp://127.0.0.1:0"},
    }
    for name, values in (options or {}).items():
        sections.setdefault(name, {}).update(values)
    lines = [
        line
        for name, values in sections.items()
        for line in (f"[{name}]", *(f"{key} = {value}" for key, value in values.items()), "")
    ]
    path.write_text("\n".join(lines))
    return path


class Daemon:
    """A broker in a process of its own, which may be started, ended and started again.

    Its sockets have ports of their own and keep them, so that clients find it again.

    Args:
        folder: for its files; one daemon has it for itself.
        url: the database, set up already.
        options: what its configuration says beyond that.
        only: "front" or "back" to run one part.
        drill: whether it only lets its journal be looked at.
    """

    def __init__(
        self, folder: Path, url: str, options: Options | None = None, only: str | None = None, drill: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "config.ini"
        self.log_file = folder / "daemon.log"
        self.url = url
        self._options = {name: dict(values) for name, values in (options or {}).items()}
        for part in ("front", "back"):
            self._options.setdefault("zmq", {}).setdefault(f"{part}socket", f"tcp://127.0.0.1:{free_port()}")
        self._only = only
        self._drill = drill
        self._ready_file = folder / "ready.json"
        self._process: Process | None = None
        self._sockets: dict[str, str] = {}

    @property
    def front(self) -> str:
        """Where emitters connect to."""
        return self._sockets["front"]

    @property
    def back(self) -> str:
        """Where recipients connect to."""
        return self._sockets["back"]

    @property
    def encrypted_front(self) -> str:
        """Where emitters with keys connect to, without its scheme."""
        return self._sockets["front.curve"].removeprefix("tcp://")

    @property
    def encrypted_back(self) -> str:
        """Where recipients with keys connect to, without its scheme."""
        return self._sockets["back.curve"].removeprefix("tcp://")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> Process:
        assert self._process is not None, "the daemon was not started"
        return self._process

    @property
    def log(self) -> str:
        """What it has logged so far, over all its starts."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self, timeout: float = READY_SECONDS, env: Mapping[str, str] | None = None) -> "Daemon":
        """Start it and come back when it is ready.

        Args:
            timeout: in seconds.
            env: what its environment has beyond that of the tests.
        """
        self.begin(env)
        try:
            self.wait_ready(timeout)
        except BaseException:
            self.kill()
            raise
        return self

    def begin(self, env: Mapping[str, str] | None = None) -> None:
        """Start it, and do not wait: one that stands by is not ready before it leads."""
        self._ready_file.unlink(missing_ok=True)
        self._process = Process(*self._command(), output=self.log_file, env=env)

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Come back when it serves."""
        wait_until(self._is_ready, "the broker is ready", timeout)

    def stop(self, timeout: float = STOP_SECONDS) -> int:
        """End it with SIGTERM and give its exit code."""
        return self.process.stop(timeout)

    def kill(self) -> None:
        """End it with SIGKILL: a crash."""
        if self._process is not None:
            self._process.kill()

    def crash(self) -> None:
        """Kill it, and examine the whole journal that it leaves: nothing is wrong in it, nor miscounted."""
        self.kill()
        found = examined(self.url)
        assert not found, found

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same ports."""
        if self.process.runs:
            assert self.stop() == 0, self.log
        self.start()

    def _command(self) -> list[str]:
        taken = {_option(name): address for name, address in self._sockets.items()}
        options = {**self._options, "zmq": {**self._options.get("zmq", {}), **taken}}
        write_config(self.config, self.url, options)
        only = ["--only", self._only] if self._only else []
        drill = ["--drill"] if self._drill else []
        return [
            script("start_xbusbroker"),
            "-c",
            str(self.config),
            "--ready-file",
            str(self._ready_file),
            *only,
            *drill,
        ]

    def _is_ready(self) -> bool:
        assert self.process.runs, f"the broker ended with {self.process.wait()}:\n{self.log}"
        if not self._ready_file.exists():
            return False
        try:
            told = json.loads(self._ready_file.read_text())
        except ValueError:  # half written
            return False
        self._sockets = {name: address for name, address in told.items() if name.startswith(("front", "back"))}
        return bool(told["pid"] == self.pid)


def told_address(daemon: Daemon, part: str) -> str:
    """An address of a broker that has told nobody that it is ready, by its configuration."""
    lines = daemon.config.read_text().splitlines()
    return next(line.partition(" = ")[2] for line in lines if line.startswith(f"{part}socket"))


def _option(name: str) -> str:
    """The option of the configuration for an address of the ready file, such as ``front.curve``."""
    part, dot, kind = name.partition(".")
    return f"{part}socket{dot}{kind}"
