"""What is staged arrives once, whatever became of an earlier attempt; on a real broker, without Spark."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spark_worker.sink.options import SinkOptions
from spark_worker.sink.sending import send, send_once
from spark_worker.sink.staging import Staged, Staging
from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.waiting import wait_until
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.planning import read_type_id
from xbus.errors import Refused
from xbus.rpc.codec import unpack_items

KEY = "spark query 7"

TORN = """
import os, sys
from xbus.emitter import Emitter
front, key, *items = sys.argv[1:]
with Emitter(front, "emitter_1", "password") as emitter:
    with emitter.envelope(key=key) as envelope, envelope.event("orders") as event:
        for item in items:
            event.send(item.encode())
        event.flush()
        print("sent", flush=True)
        sys.stdin.read()
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"orders": {"store": []}})
    return start_daemon(sqlite_url)


def options(daemon: Daemon, folder: Path) -> SinkOptions:
    return SinkOptions(daemon.front, "emitter_1", PASSWORD, "orders", str(folder), 1, "", "", 240.0)


def staged(folder: Path, *parts: list[bytes]) -> list[Staged]:
    """Some parts, those that come last first, as tasks end when they like."""
    staging = Staging(str(folder))
    found = []
    for number, items in enumerate(parts):
        batch = pa.RecordBatch.from_pydict({"data": pa.array(items, pa.binary())})
        found.append(staging.stage([batch], ["query", "7"], 1, number, "query"))
    return found[::-1]


def log_of(daemon: Daemon) -> list[tuple[int, bytes]]:
    """All items with their positions."""
    with reading(daemon.url) as connection:
        type_id = read_type_id(connection, "orders")
    assert type_id is not None
    with open_reader(daemon.url) as reader:
        return [
            (segment.position, item)
            for segment in reader.log(type_id, 0, 2**40)
            for item in unpack_items(segment.data, segment.items)
        ]


def test_parts_are_sent_in_their_order(daemon: Daemon, tmp_path: Path) -> None:
    parts = staged(tmp_path, [b"a", b"b"], [], [b"c"])
    receipt = send(options(daemon, tmp_path), Staging(str(tmp_path)), parts, "")
    assert receipt is not None
    assert (receipt.position, receipt.items) == (1, 3)
    assert log_of(daemon) == [(1, b"a"), (1, b"b"), (1, b"c")]


def test_nothing_is_sent_of_nothing(daemon: Daemon, tmp_path: Path) -> None:
    assert send(options(daemon, tmp_path), Staging(str(tmp_path)), staged(tmp_path, [], []), KEY) is None


def test_a_key_is_sent_once(daemon: Daemon, tmp_path: Path) -> None:
    staging, wanted = Staging(str(tmp_path)), options(daemon, tmp_path)
    for _ in range(2):
        send_once(wanted, staging, staged(tmp_path, [b"a"], [b"b"]), KEY)
    # Rows that came otherwise the second time don't count either.
    send_once(wanted, staging, staged(tmp_path, [b"b"], [b"a"]), KEY)
    send_once(wanted, staging, staged(tmp_path, [b"a"]), KEY)
    assert log_of(daemon) == [(1, b"a"), (1, b"b")]
    with pytest.raises(Refused):
        send(wanted, staging, staged(tmp_path, [b"c"]), KEY)


@pytest.mark.parametrize("before", [["a"], ["a", "b"], ["b"], ["b", "a"], ["a", "b", "c"]], ids="-".join)
def test_an_attempt_that_was_killed_leaves_nothing_that_counts(
    daemon: Daemon, tmp_path: Path, start_process: StartProcess, before: list[str]
) -> None:
    process = start_process(sys.executable, "-c", TORN, daemon.front, KEY, *before)
    wait_until(lambda: "sent" in process.text, "the first attempt has sent")
    process.kill()
    send_once(options(daemon, tmp_path), Staging(str(tmp_path)), staged(tmp_path, [b"a"], [b"b"]), KEY)
    assert log_of(daemon) == [(1, b"a"), (1, b"b")]
