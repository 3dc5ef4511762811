"""What a dead driver left open of a micro-batch's envelope stands in nobody's way, whatever rows come then."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from spark_worker.sink.options import SinkOptions
from spark_worker.sink.sending import send_once
from spark_worker.sink.staging import Staging
from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD
from tests.support.spark import SECONDS
from tests.support.spark_log import SparkLog, numbered
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.rpc.codec import unpack_items

KEY = "spark query 0"

pytestmark = pytest.mark.slow

DRIVER = """
import sys
from xbus.emitter import Emitter

front, password, items, key = sys.argv[1:]
with Emitter(front, "emitter_1", password) as emitter, emitter.envelope(key=key) as envelope:
    with envelope.event("notes") as event:
        for number in range(int(items)):
            event.send(b"%d" % number)
        if items == "2500":
            sys.stdin.read()
    sys.stdin.read()
"""
"""With 2,500 items it stays in the midst of the event, else behind it; it never seals."""


@pytest.mark.parametrize("left", [2500, 4000], ids=["in an event", "behind an event"])
@pytest.mark.parametrize(("first", "end"), [(0, 4000), (7, 4007), (0, 1500), (0, 6000)])
def test_the_rows_of_one_try_are_sent_once(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path, first: int, end: int, left: int
) -> None:
    SparkLog.prepare(sqlite_url)
    front = start_daemon(sqlite_url).front
    command = [sys.executable, "-c", DRIVER, front, PASSWORD, str(left), KEY]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as driver:
        wait_until(lambda: is_left(sqlite_url, left), "the bus has what the driver sent", SECONDS)
        driver.kill()
    staging = Staging(str(tmp_path / "staging"))
    batch = pa.RecordBatch.from_pydict({"data": pa.array(numbered(range(first, end)), pa.binary())})
    staged = staging.stage([batch], ["query", "0"], 1_000_000, 0, "query")
    options = SinkOptions(front, "emitter_1", PASSWORD, "notes", str(tmp_path / "staging"), 1, "", "", 240.0)

    for _ in range(2):
        send_once(options, staging, [staged], KEY)

    assert sealed_items(sqlite_url) == numbered(range(first, end)), "of what was never sealed nothing counts"


def is_left(url: str, items: int) -> bool:
    event, segment = model.event.c, model.log_segment.c
    wanted = sa.select(sa.func.max(event["items"])) if items == 4000 else sa.select(sa.func.sum(segment["items"]))
    with reading(url) as connection:
        return bool(connection.execute(wanted).scalar() == items)


def sealed_items(url: str) -> list[bytes]:
    segment = model.log_segment.c
    wanted = (
        sa.select(segment.data, segment["items"])
        .join(model.event, model.event.c.id == segment.event_id)
        .join(model.envelope, model.envelope.c.id == model.event.c.envelope_id)
        .where(model.envelope.c.position.is_not(None))
        .order_by(model.envelope.c.position, segment.first_index)
    )
    with reading(url) as connection:
        return [item for data, items in connection.execute(wanted) for item in unpack_items(bytes(data), items)]
