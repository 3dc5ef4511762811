"""Old programs that tests start in the environments of their time."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartProcess
from tests.old.environments import VERSIONS, Missing, environment
from tests.old.running import PROGRAMS, Program, Recipient, arguments
from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.processes import Process


class Old:
    """Starts the programs of one environment, or of two: then emitters and workers are of the second.

    Args:
        start: starts a process that the test owns.
        folder: for files.
        versions: the Pythons of consumers, and of all others.
    """

    def __init__(self, start: StartProcess, folder: Path, versions: tuple[str, str]) -> None:
        self._start = start
        self._folder = folder
        try:
            self._of_consumers, self._of_others = (environment(version) for version in versions)
        except Missing as missing:
            pytest.skip(str(missing))

    def emitter(self, daemon: Daemon, login: str = "emitter_1", **options: object) -> Program:
        return self._run("emitter", daemon.front, login, **options)

    def emits(self, daemon: Daemon, login: str = "emitter_1", **options: object) -> list[str]:
        """Run an emitter to its end; the ids of what it sent, by number."""
        told = self.emitter(daemon, login, **options).ended()
        *envelopes, out = told
        assert out == {"logged_out": True}
        assert all(line["ended"] and line["sealed"] for line in envelopes)
        assert {line["accepted"] for line in envelopes} == {options.get("items", 1)}
        return [line["envelope"] for line in sorted(envelopes, key=lambda line: int(line["number"]))]

    def worker(self, daemon: Daemon, login: str, **options: object) -> Recipient:
        process = self._process(self._of_others, "worker", daemon.back, login, **options)
        return Recipient(process, login).registered()

    def consumer(self, daemon: Daemon, login: str, **options: object) -> Recipient:
        process = self._process(self._of_consumers, "consumer", daemon.back, login, **options)
        return Recipient(process, login).registered()

    def calls(self, address: str, *calls: Sequence[object]) -> dict[str, Any]:
        """Make calls as a client; what came back by name: an answer, or the name of an error."""
        path = self._folder / "calls"
        path.write_text("".join(json.dumps(call) + "\n" for call in calls))
        process = self._start(self._of_others, PROGRAMS / "calls.py", address, path)
        return {line["name"]: line.get("answer", line.get("error")) for line in Program(process, "calls").ended()}

    def sends_files(self, daemon: Daemon, *files: str, descriptors: Sequence[Path]) -> Program:
        named = [f"--descriptor={path}" for path in descriptors]
        command = [PROGRAMS / "file_emitter.py", daemon.front, "emitter_1", PASSWORD, *named, *files]
        return Program(self._start(self._of_others, *command), "file emitter")

    def _run(self, program: str, address: str, login: str, **options: object) -> Program:
        return Program(self._process(self._of_others, program, address, login, **options), login)

    def _process(self, python: Path, program: str, address: str, login: str, **options: object) -> Process:
        return self._start(python, PROGRAMS / f"{program}.py", address, login, PASSWORD, *arguments(options))


@pytest.fixture(params=[*zip(VERSIONS, VERSIONS, strict=True), VERSIONS, VERSIONS[::-1]], ids="-".join)
def old(request: pytest.FixtureRequest, start_process: StartProcess, tmp_path: Path) -> Old:
    """Old programs: all of one environment, and mixed."""
    return Old(start_process, tmp_path, request.param)


@pytest.fixture(params=VERSIONS)
def old_client(request: pytest.FixtureRequest, start_process: StartProcess, tmp_path: Path) -> Old:
    """Old programs, where mixing them proves nothing."""
    return Old(start_process, tmp_path, (request.param, request.param))
