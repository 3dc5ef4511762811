"""The way of an ordinary message is short: counted in real processes, from a put until the cursors are durable.

Each number here is a ceiling that only falls. Of several puts the shortest counts: a timer may fall into any of them.
"""

import json
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import StartProcess
from tests.support.bus import Nodes, add_bus
from tests.support.daemon import Daemon
from tests.support.processes import module, run
from tests.support.putting import Flow
from tests.support.waiting import wait_until

TRACED = Path(__file__).parents[1] / "support" / "traced"
CONSUMER: Nodes = {"store": []}
WORKER_AND_TWO: Nodes = {"check": ["store", "book"], "store": [], "book": []}

PUTS = 25
MOST_RUNS = 12
"""A busy machine has something fall into all puts of a run: then another run follows."""


class Length(NamedTuple):
    """How long the way of one put is, over all processes.

    Args:
        files: of the product that ran.
        back_files: those of them below ``xbus/broker/back/``.
        functions: that were called.
        lines: that were executed.
    """

    files: int
    back_files: int
    functions: int
    lines: int


@pytest.mark.parametrize(
    ("database", "nodes", "is_tagged", "ceiling"),
    [
        pytest.param("sqlite", CONSUMER, False, Length(53, 10, 185, 1366), id="plain"),
        pytest.param("sqlite", CONSUMER, True, Length(58, 10, 200, 1460), id="tagged"),
        pytest.param("sqlite", WORKER_AND_TWO, False, Length(65, 19, 366, 1970), id="worker"),
        pytest.param("postgres", CONSUMER, False, Length(55, 10, 200, 1410), id="on_postgresql"),
    ],
)
def test_a_put_passes_few_files_and_functions(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start_process: StartProcess,
    database: str,
    nodes: Nodes,
    is_tagged: bool,
    ceiling: Length,
) -> None:
    url: str = request.getfixturevalue(f"{database}_url")
    add_bus(url, {"orders": nodes})
    flow = Flow("orders", PUTS, is_tagged)
    shortest = run_once(url, nodes, flow, tmp_path / "run-1", start_process)
    for number in range(2, MOST_RUNS + 1):
        if is_within(shortest, ceiling):
            break
        again = run_once(url, nodes, flow, tmp_path / f"run-{number}", start_process)
        shortest = Length(*map(min, shortest, again))
    assert is_within(shortest, ceiling), f"{shortest} exceeds {ceiling}"


def is_within(length: Length, ceiling: Length) -> bool:
    """Check whether no number is above its ceiling."""
    return length == Length(*map(min, length, ceiling))


def run_once(url: str, nodes: Nodes, flow: Flow, folder: Path, start_process: StartProcess) -> Length:
    """Measure the puts of a flow in programs that are started for it.

    Args:
        url: of the database, in which the nodes are.
        nodes: the recipients to start.
        folder: for the files of the run.
    """
    traces: list[Path] = []

    def traced() -> dict[str, str]:
        traces.append(folder / f"trace-{len(traces)}")
        return {"PYTHONPATH": str(TRACED), "XBUS_TRACE": str(traces[-1])}

    folder.mkdir()
    daemon = Daemon(folder / "daemon", url).start(env=traced())
    try:
        recipients = [
            start_process(
                *module("tests.support.taking"),
                *(daemon.back, f"{name}_1", "worker" if children else "consumer"),
                cwd=Path(__file__).parents[2],
                env=traced(),
            )
            for name, children in nodes.items()
        ]
        put = run(
            *module("tests.support.putting"),
            *(daemon.front, url, json.dumps(flow)),
            cwd=Path(__file__).parents[2],
            env=traced(),
        )
        assert put.returncode == 0, put.stderr
        for recipient in recipients:
            recipient.stop()
        assert daemon.stop() == 0, daemon.log
    finally:
        daemon.kill()
    wait_until(lambda: all(trace.exists() for trace in traces), "all programs have written their traces")
    return shortest_of(traces, json.loads(put.stdout.splitlines()[-1]))


def shortest_of(traces: list[Path], windows: list[tuple[float, float]]) -> Length:
    """The smallest counts of the puts.

    Args:
        traces: as ``tests/support/traced`` writes them, one of each program.
        windows: when each put began, and when it was done.
    """
    parts = [line.split("\t") for trace in traces for line in trace.read_text(encoding="utf-8").splitlines()]
    # Sorted once: millions of lines lie between the puts, too.
    noted = sorted((float(at), file, function, line) for at, file, function, line in parts)
    times = [at for at, *_ in noted]
    lengths = []
    for began, ended in windows:
        within = [each[1:] for each in noted[bisect_left(times, began) : bisect_right(times, ended)]]
        files = {file for file, _, _ in within}
        lengths.append(
            Length(
                len(files),
                sum(file.startswith("broker/back/") for file in files),
                len({(file, function) for file, function, _ in within if function}),
                len({(file, line) for file, _, line in within}),
            )
        )
    return Length(*map(min, zip(*lengths, strict=True)))
