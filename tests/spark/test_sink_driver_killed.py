"""The driver of a query that sends to the bus is killed, its Java and its tasks with it, and started again with the
same checkpoint: every item is on the bus once, in order."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon, StartProcess
from tests.support import spark
from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.spark import SECONDS
from tests.support.spark_log import SparkLog, numbered
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.emitter import Emitter
from xbus.rpc.codec import unpack_items

pytestmark = pytest.mark.slow

AHEAD = 3
"""So many envelopes of orders wait for the query at any time, however fast it is: it is killed at its work."""
EACH = 20_000
"""Items of an envelope: sending them takes the driver long enough to be killed meanwhile."""

DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.support.spark import settings

config, front, password, folder = sys.argv[1:]
session = SparkSession.Builder().master("local[2]").config(map=dict(settings(Path(folder)))).getOrCreate()
orders = session.readStream.format("xbus").option("config", config).option("eventType", "orders")
orders = orders.option("startingPosition", "earliest").option("maxItemsPerTrigger", 1).option("columns", "data").load()
notes = orders.writeStream.format("xbus").option("front", front).option("eventType", "notes")
notes = notes.option("login", "emitter_1").option("password", password).option("inlineBytes", 1000)
notes.option("checkpointLocation", folder + "/checkpoint").start().awaitTermination()
"""
"""Carries each envelope of orders over to notes, in a micro-batch of its own, until it is killed."""


def test_each_item_is_sent_once(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> None:
    SparkLog.prepare(sqlite_url)
    daemon = start_daemon(sqlite_url)
    emitted = 0

    def keep_ahead() -> None:
        nonlocal emitted
        while emitted < sealed(sqlite_url) + AHEAD:
            emit(daemon, range(emitted * EACH, (emitted + 1) * EACH))
            emitted += 1

    def run_until(condition: Callable[[], object], what: str, meanwhile: Callable[[], None] = keep_ahead) -> None:
        meanwhile()
        command = [sys.executable, "-c", DRIVER, daemon.config, daemon.front, PASSWORD, tmp_path / "driver"]
        driver = start_process(*command, cwd=Path.cwd(), env=spark.environment())

        def met() -> object:
            assert driver.runs, driver.text
            meanwhile()
            return condition()

        wait_until(met, what, SECONDS)
        driver.kill()

    run_until(lambda: sealed(sqlite_url) >= 2 and is_sending(sqlite_url), "an envelope is half sent")
    before = sealed(sqlite_url)
    # Of that the query has not taken note when it is killed, or only just.
    run_until(lambda: sealed(sqlite_url) > before + 2, "an envelope was just sealed")
    run_until(lambda: sealed(sqlite_url) == emitted, "all is sent", meanwhile=lambda: None)

    assert notes(sqlite_url) == numbered(range(emitted * EACH))


def emit(daemon: Daemon, numbers: range) -> None:
    with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        emitter.put("orders", [b"%d" % number for number in numbers])


def sealed(url: str) -> int:
    """How many envelopes the query has sent."""
    return with_items(url, "received")


def is_sending(url: str) -> bool:
    """Whether there are items of an envelope that is not sealed."""
    return with_items(url, "open") > 0


def with_items(url: str, state: str) -> int:
    """How many envelopes of notes in a state hold items."""
    envelope, event, segment = model.envelope.c, model.event.c, model.log_segment.c
    of_notes = (
        sa.select(sa.func.count(envelope.id.distinct()))
        .join(model.event, event.envelope_id == envelope.id)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .join(model.log_segment, segment.event_id == event.id)
        .where(model.event_type.c.name == "notes", envelope.state == state)
    )
    with reading(url) as connection:
        return int(connection.execute(of_notes).scalar_one())


def notes(url: str) -> list[bytes]:
    """All items of notes, in the order of the log."""
    envelope, event, segment = model.envelope.c, model.event.c, model.log_segment.c
    wanted = (
        sa.select(segment.data, segment["items"])
        .join(model.event, event.id == segment.event_id)
        .join(model.envelope, envelope.id == event.envelope_id)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .where(envelope.position.is_not(None), model.event_type.c.name == "notes")
        .order_by(envelope.position, segment.first_index)
    )
    with reading(url) as connection:
        return [item for data, items in connection.execute(wanted) for item in unpack_items(bytes(data), items)]
