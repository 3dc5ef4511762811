"""``python -m benchmarks``: one JSON line per scenario and database, on standard output.

These are read from the environment: ``ONLY`` names one scenario, ``DB`` is sqlite, postgresql or both (the default).
``ENVELOPES`` is how many small envelopes are sent where not so many as usual, ``ROUNDS`` how often each is measured.
``FIGURES`` is a file that keeps the lines for the report.
"""

import os
import sys
from collections.abc import Callable, Mapping

from benchmarks import (
    ack,
    backlog_memory,
    batch_intake,
    bot_trigger,
    compressed,
    emitted_output,
    encrypted,
    end_to_end,
    file,
    http_callbacks,
    http_publish,
    reader,
    reader_idle,
    restart,
)
from benchmarks.databases import KINDS, Databases, databases
from benchmarks.envelopes import catch_up, growth, idle, instances, latency, rare, shapes, small, standby
from benchmarks.recording import Recorder
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from benchmarks.stopping import end_all_on_sigterm
from tests.support.postgres import NotFound

SCENARIOS: Mapping[str, Callable[[Databases, Sizes], Result]] = {
    "ack_one": ack.measure_one,
    "ack_100": ack.measure_100,
    "batch_intake": batch_intake.measure,
    "end_to_end": end_to_end.measure,
    "end_to_end_worker": end_to_end.measure_worker,
    "end_to_end_four": end_to_end.measure_four,
    "compressed": compressed.measure,
    "encrypted": encrypted.measure,
    "file": file.measure,
    "emitted_output": emitted_output.measure,
    "http_publish": http_publish.measure,
    "http_callback": http_callbacks.with_requests(10),
    "http_callback_single": http_callbacks.with_requests(1),
    "http_callback_batches": http_callbacks.measure_rate,
    "http_1000_subscriptions": http_callbacks.measure_many,
    "http_followers": http_callbacks.measure_followers,
    "backlog_memory": backlog_memory.measure,
    "restart": restart.measure,
    "small_1": small.measure_1,
    "small_10": small.measure_10,
    "small_100": small.measure_100,
    "small_100_emitters": small.measure_100_emitters,
    "small_1_real": shapes.real(1, 1),
    "small_10_real": shapes.real(1, 10),
    "small_100_real": shapes.real(1, 100),
    "small_100_emitters_real": shapes.real(100, 1),
    "small_10_standby": standby.in_flight(10),
    "small_100_standby": standby.in_flight(100),
    "small_old_1": small.measure_old_1,
    "small_old_100": small.measure_old_100,
    "small_10_kb": shapes.measure_10_kb,
    "small_1_mb": shapes.measure_1_mb,
    "worker": shapes.measure_worker,
    "chained": shapes.measure_chained,
    "fan_out": shapes.measure_fan_out,
    "fan_out_several": shapes.measure_fan_out_several,
    "fan_out_own": shapes.measure_fan_out_own,
    "ordered": shapes.measure_ordered,
    "instances": instances.measure,
    "latency": latency.measure,
    "catch_up": catch_up.measure,
    "idle_100": idle.with_roles(100),
    "idle_1000": idle.with_roles(1_000),
    "idle_10000": idle.with_roles(10_000),
    "rare": rare.measure,
    "reader": reader.with_programs(1, ranges=1),
    "reader_five": reader.with_programs(5, ranges=8),
    "reader_small": reader.measure_small,
    "reader_idle": reader_idle.with_programs(1_000),
    "bot_trigger": bot_trigger.measure,
    "growth": growth.measure,
}

OF_POSTGRESQL = frozenset({"small_10_standby", "small_100_standby"})
"""Scenarios that other databases can't have."""


def main(only: str, kinds: str, sizes: Sizes, recorder: Recorder) -> None:
    """Measure and print.

    Args:
        only: a scenario; all of them where it is empty.
        kinds: ``sqlite``, ``postgresql``, or ``both`` (also where it is empty).
        sizes: how much is sent.
        recorder: gets the figures.
    """
    scenarios, chosen_kinds = chosen("ONLY", only, SCENARIOS, ""), chosen("DB", kinds, KINDS, "both")
    recorder.begin("bench")
    for kind in chosen_kinds:
        with databases(kind) as of_kind:
            for scenario in (each for each in scenarios if kind == "postgresql" or each not in OF_POSTGRESQL):
                print(f"measuring {scenario} on {kind} ...", file=sys.stderr, flush=True)
                recorder.record(SCENARIOS[scenario](of_kind, sizes).line(scenario, kind))


def chosen(variable: str, name: str, known: Mapping[str, object], everything: str) -> list[str]:
    """What a variable of the environment chooses: the one of that name, or all.

    Args:
        everything: what stands for all, as does nothing.
    """
    if name in ("", everything):
        return list(known)
    if name not in known:
        sys.exit(f"{variable}={name}: there is none of that name, choose one of {', '.join(known)}")
    return [name]


if __name__ == "__main__":
    end_all_on_sigterm()
    environment = os.environ
    try:
        main(environment.get("ONLY", ""), environment.get("DB", ""), Sizes.of_environment(), Recorder.of_environment())
    except NotFound as error:
        sys.exit(f"{error}: install PostgreSQL, or measure with DB=sqlite")
