"""Starting the programs of this package and reading what they print."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes import Process, module

MOST_SECONDS = 240.0


@contextmanager
def running(name: str, *arguments: object) -> Iterator[Process]:
    """A program of this package in a process of its own, ended at the end."""
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as folder:
        command = [*module(f"benchmarks.programs.{name}"), *map(str, arguments)]
        process = Process(*command, output=Path(folder) / "output")
        try:
            yield process
        finally:
            process.kill()


def reports(process: Process) -> list[dict[str, Any]]:
    """The lines of JSON that it has printed so far."""
    lines = process.text.split("\n")[:-1]
    assert all(line.startswith("{") for line in lines), process.text
    return [json.loads(line) for line in lines]


def emit(front: str, envelopes: int, items: int) -> tuple[float, float]:
    """Have the emitter send; when it began and when it ended, in seconds of the monotonic clock."""
    with running("emitter", front, envelopes, items) as emitter:
        assert emitter.wait(MOST_SECONDS) == 0, emitter.text
        report = reports(emitter)[-1]
    return report["began"], report["ended"]
