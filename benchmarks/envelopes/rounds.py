"""A round: emitters put envelopes, consumers take them, and all say what it took."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.envelopes.load import Load
from benchmarks.envelopes.stopwatch import MS
from benchmarks.processes import cpu_seconds
from benchmarks.programs.running import MOST_SECONDS, reports, running
from benchmarks.result import Result
from tests.support.daemon import Daemon
from tests.support.memory import peak_mib
from tests.support.processes import Process
from tests.support.waiting import wait_until

MOST_SECONDS_OF_ONE = 0.05


@dataclass(frozen=True)
class Round:
    """What was measured.

    Attributes:
        acknowledged: envelopes a second, from the first ``put`` to the last answer.
        delivered: envelopes a second, from the first ``put`` to the last item at the last consumer.
        more: figures with their units at the end of their names.
    """

    acknowledged: float
    delivered: float
    more: Mapping[str, float]


def play(daemon: Daemon, consumers: Sequence[Process], load: Load) -> Round:
    """Put the load, and wait until each consumer has taken it.

    Args:
        consumers: each reports once for each load.
    """
    reported = [len(reports(consumer)) for consumer in consumers]
    most_seconds = most_seconds_of(load.envelopes)
    with running("puts_old" if load.is_old else "puts", daemon.front, json.dumps(asdict(load)), daemon.pid) as emitters:
        assert emitters.wait(most_seconds) == 0, emitters.text
        emitted = reports(emitters)[-1]
    for consumer, before in zip(consumers, reported, strict=True):
        wait_until(lambda: len(reports(consumer)) > before, "all is delivered", most_seconds)  # noqa: B023
    broker = cpu_seconds(daemon.pid) - emitted["server_cpu_before"]
    taken = [reports(consumer)[-1] for consumer in consumers]
    of_one = MS / load.envelopes
    return Round(
        load.envelopes / (emitted["ended"] - emitted["began"]),
        load.envelopes / (max(of_consumer["last"] for of_consumer in taken) - emitted["began"]),
        {
            "broker_cpu_ms": broker * of_one,
            "emitter_cpu_ms": emitted["cpu"] * of_one,
            "consumer_cpu_ms": sum(of_consumer["cpu"] for of_consumer in taken) * of_one,
            "acknowledged_p50_ms": emitted["p50_ms"],
            "acknowledged_p99_ms": emitted["p99_ms"],
            "delivered_p50_ms": max(of_consumer["p50_ms"] for of_consumer in taken),
            "delivered_p99_ms": max(of_consumer["p99_ms"] for of_consumer in taken),
        },
    )


def most_seconds_of(envelopes: int) -> float:
    """How long so many envelopes may take until something must be wrong."""
    return MOST_SECONDS + envelopes * MOST_SECONDS_OF_ONE


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Give the median of each figure of the rounds."""
    return {name: median(one.more[name] for one in rounds) for name in rounds[0].more}


def result(daemon: Daemon, rounds: Sequence[Round], floor: float | None) -> Result:
    """Sum rounds up: how many envelopes a second were acknowledged, and what else there is to tell.

    Args:
        daemon: the broker, which still runs.
        floor: the same as the bare thing does it.
    """
    more = {"delivered_per_s": median(one.delivered for one in rounds), **medians(rounds)}
    more["broker_peak_mib"] = peak_mib(daemon.pid)
    return Result(median(one.acknowledged for one in rounds), floor, "envelopes/s", more)
