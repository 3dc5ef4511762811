"""A bus whose worker is Spark: large events are handed over to it as a whole."""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from benchmarks.backlog import add_backlog
from benchmarks.bus import CONSUMER, EMITTER, EVENT_TYPE, PASSWORD, running_bus, set_up
from benchmarks.items import sample, sample_msgpack
from benchmarks.programs.running import running
from benchmarks.spark.enriching import SCHEMA
from tests.support import spark as support
from tests.support.daemon import Daemon
from tests.support.memory import peak_mib, resident_mib
from tests.support.processes import Process, script
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
)
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.planning import cut_output
from xbus.states import AttemptState

SAMPLES = {"json": sample, "msgpack": sample_msgpack}
"""What makes the items, by the format that they are in."""

WORKER = "enricher"
MOST_SECONDS = 900.0
LOOK_SECONDS = 0.5

BUS = BusSpec(
    event_types={
        EVENT_TYPE: EventTypeSpec(
            EVENT_TYPE, False, {"enrich": NodeSpec("enrich", "enrich", ("books",)), "books": NodeSpec("books", "books")}
        )
    },
    services={"enrich": ServiceSpec("enrich", "worker"), "books": ServiceSpec("books", "consumer")},
    roles={WORKER: RoleSpec(WORKER, "enrich"), CONSUMER: RoleSpec(CONSUMER, "books")},
    profiles={"shops": ProfileSpec("shops", frozenset({EVENT_TYPE}))},
    emitters={EMITTER: EmitterSpec(EMITTER, "shops")},
)


@dataclass(frozen=True)
class BulkRun:
    """What came of the last event of a bus.

    Attributes:
        seconds: from its hand-over to the worker until its output was ready.
        items: how many its output has.
        digest: the hash of them all, in their order.
        idle_mib: the broker's memory before a recipient came.
        peak_mib: the most that it has taken until the end.
    """

    seconds: float
    items: int
    digest: str
    idle_mib: float
    peak_mib: float


def transform(
    url: str, warm_items: int, items: int, master: str, settings: Sequence[str] = (), items_format: str = "json"
) -> BulkRun:
    """Have a worker make the output of an event, behind a smaller one that warms its session up.

    Args:
        url: an empty journal.
        master: where the worker's Spark runs.
        settings: of its session, each as ``--conf`` takes it.
        items_format: of ``SAMPLES``.
    """
    set_up(url, BUS)
    texts = SAMPLES[items_format]()
    add_backlog(url, 1, warm_items, texts=texts)
    add_backlog(url, 1, items, after=1, texts=texts)
    with running_bus(url, BUS) as daemon:
        idle = resident_mib(daemon.pid)
        with spark_worker(daemon, master, settings, items_format) as worker, running("consumer", daemon.back, CONSUMER):
            wait_until(lambda: _is_over(url, worker), "the output of the last event is ready", MOST_SECONDS)
            peak = peak_mib(daemon.pid)
    return BulkRun(*_measured(url), idle, peak)


@contextmanager
def spark_worker(daemon: Daemon, master: str, settings: Sequence[str], items_format: str) -> Iterator[Process]:
    """The worker, in a process of its own, which is ended at the end."""
    command = [
        script("xbus-spark-worker"),
        *("-c", str(daemon.config), "--login", WORKER, "--back", daemon.back, "--master", master, "--min-items", "1"),
        *("--transform", "benchmarks.spark.enriching:transform", "--format", items_format, "--schema", SCHEMA),
        *(word for setting in settings for word in ("--conf", setting)),
    ]
    environment = {**support.environment(), "XBUS_PASSWORD": PASSWORD}
    worker = Process(*command, output=daemon.config.with_name("worker.log"), cwd=CHECKOUT, env=environment)
    try:
        yield worker
        assert worker.stop() == 0, worker.text
    finally:
        worker.kill()


CHECKOUT = Path(__file__).parents[2]

_ATTEMPTS = (
    sa.select(model.bulk_attempt, model.envelope.c.position)
    .join(model.event, model.event.c.id == model.bulk_attempt.c.event_id)
    .join(model.envelope, model.envelope.c.id == model.event.c.envelope_id)
    .order_by(model.envelope.c.position, model.bulk_attempt.c.started_at)
)


def _attempts(url: str) -> Sequence[sa.Row[tuple[object, ...]]]:
    with reading(url) as connection:
        return connection.execute(_ATTEMPTS).all()


def _is_over(url: str, worker: Process) -> bool:
    time.sleep(LOOK_SECONDS)  # looking takes the time of those who are measured
    assert worker.runs, worker.text
    attempts = _attempts(url)
    wrong = [attempt for attempt in attempts if attempt.state in (AttemptState.FAILED, AttemptState.ABANDONED)]
    assert not wrong, json.dumps([attempt.cause for attempt in wrong])
    return len(attempts) > 1 and all(attempt.state == AttemptState.READY for attempt in attempts)


def _measured(url: str) -> tuple[float, int, str]:
    warm, measured = _attempts(url)
    began = max(measured.started_at, warm.ended_at)
    digest = hashlib.sha256()
    with reading(url) as connection, open_reader(url) as reader:
        for part in cut_output(connection, measured.id, 1):
            for segment in reader.segments(part):
                digest.update(segment.data)
    return (measured.ended_at - began).total_seconds(), measured.items, digest.hexdigest()
