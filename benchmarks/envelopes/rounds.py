"""A round: emitters put envelopes, one consumer takes them, and both say what it took."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.envelopes.load import Load
from benchmarks.processes import cpu_seconds
from benchmarks.programs.running import MOST_SECONDS, reports, running
from tests.support.daemon import Daemon
from tests.support.processes import Process
from tests.support.waiting import wait_until

MS = 1_000


@dataclass(frozen=True)
class Round:
    """What was measured.

    Attributes:
        acknowledged: envelopes a second, from the first ``put`` to the last answer.
        delivered: envelopes a second, from the first ``put`` to the last commit of the consumer.
        more: figures with their units at the end of their names.
    """

    acknowledged: float
    delivered: float
    more: Mapping[str, float]


def play(daemon: Daemon, consumer: Process, load: Load) -> Round:
    """Put the load, and wait until the consumer has taken it.

    Args:
        consumer: reports once for each load.
    """
    reported = len(reports(consumer))
    before = cpu_seconds(daemon.pid)
    emitted = put(daemon.front, load)
    wait_until(lambda: len(reports(consumer)) > reported, "all is delivered", MOST_SECONDS)
    broker = cpu_seconds(daemon.pid) - before
    taken = reports(consumer)[-1]
    of_one = MS / load.envelopes
    return Round(
        load.envelopes / (emitted["ended"] - emitted["began"]),
        load.envelopes / (taken["last"] - emitted["began"]),
        {
            "broker_cpu_ms": broker * of_one,
            "emitter_cpu_ms": emitted["cpu"] * of_one,
            "consumer_cpu_ms": taken["cpu"] * of_one,
            "acknowledged_p50_ms": emitted["p50_ms"],
            "acknowledged_p99_ms": emitted["p99_ms"],
            "delivered_p50_ms": taken["p50_ms"],
            "delivered_p99_ms": taken["p99_ms"],
        },
    )


def put(front: str, load: Load) -> Mapping[str, float]:
    """Have the load put by a process of its own; its report."""
    with running("puts", front, json.dumps(asdict(load))) as emitters:
        assert emitters.wait(MOST_SECONDS) == 0, emitters.text
        return reports(emitters)[-1]


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Give the median of each figure of the rounds."""
    return {name: median(one.more[name] for one in rounds) for name in rounds[0].more}
