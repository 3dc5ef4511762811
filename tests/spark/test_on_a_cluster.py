"""Source, sink and archive on a standalone cluster: the executors are other processes than the driver's."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.journal import settle_all
from tests.support.processes import run, script
from tests.support.spark import SECONDS, Cluster, environment
from tests.support.spark_driver import Driver, Options, Row, pump, read, read_stream, write
from tests.support.spark_log import SparkLog, forget_last_batch, numbered
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.journal import Journal
from xbus.clock import SystemClock
from xbus.emitter import Emitter

pytestmark = pytest.mark.cluster

ENVELOPES = [numbered(range(10)), numbered(range(10, 20_000)), [b"", b"last"]]

ROWS: list[Row] = [
    (position, index, item) for position, items in enumerate(ENVELOPES, 1) for index, item in enumerate(items)
]


@pytest.fixture(scope="module")
def driver(spark_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver(spark_cluster.url, tmp_path_factory.mktemp("driver")) as driver:
        yield driver


@pytest.fixture
def daemon(postgres_url: str, start_daemon: StartDaemon) -> Daemon:
    SparkLog.prepare(postgres_url)
    return start_daemon(postgres_url)


def emit(daemon: Daemon, *envelopes: list[bytes]) -> list[str]:
    with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        return [emitter.put("orders", items).envelope_id for items in envelopes]


def source(daemon: Daemon, type_name: str = "orders", **more: str) -> Options:
    return {"config": str(daemon.config), "eventType": type_name, **more}


def sink(daemon: Daemon, **more: str) -> Options:
    return {"front": daemon.front, "login": "emitter_1", "password": PASSWORD, "eventType": "notes", **more}


def test_the_source_reads_what_was_emitted(
    daemon: Daemon, driver: Driver, spark_cluster: Cluster, tmp_path: Path
) -> None:
    emit(daemon, *ENVELOPES[:2])
    stream: Callable[[], list[list[Row]]] = lambda: driver.do(  # noqa: E731
        read_stream, source(daemon, startingPosition="earliest", maxItemsPerTrigger="5"), tmp_path / "checkpoint"
    )

    first = stream()
    # The second may still be about to come, or one of the session before about to go.
    wait_until(lambda: len(spark_cluster.executors()) == 2, "there are two executors", SECONDS)
    emit(daemon, ENVELOPES[2])
    second = stream()
    rows, partitions = driver.do(read, source(daemon, partitions="4"))

    assert rows == ROWS
    assert partitions > 1
    assert [[position for position, index, _ in batch if index == 0] for batch in first] == [[1], [2]]
    assert [row for batch in first + second for row in batch] == ROWS


@pytest.mark.parametrize("inline", ["1", "1000000"], ids=["in files", "in messages"])
def test_what_is_sent_twice_is_there_once(daemon: Daemon, driver: Driver, tmp_path: Path, inline: str) -> None:
    emit(daemon, *ENVELOPES)
    checkpoint = tmp_path / "checkpoint"
    orders = source(daemon, startingPosition="earliest", maxItemsPerTrigger="1", columns="data")

    def send_on() -> None:
        driver.do(pump, orders, sink(daemon, inlineBytes=inline), checkpoint)

    for _ in range(2):
        driver.do(write, 1000, sink(daemon, inlineBytes=inline, stagingDir=str(tmp_path / "staging"), key="day 1"))
    send_on()
    # As if the driver had died before it noted that the last batch was done.
    forget_last_batch(checkpoint)
    send_on()

    rows, _ = driver.do(read, source(daemon, "notes"))
    expected = [numbered(range(1000)), *ENVELOPES]
    assert rows == [
        (position, index, item) for position, items in enumerate(expected, 4) for index, item in enumerate(items)
    ]
    assert not list(tmp_path.glob("**/*.items"))


def test_what_is_archived_is_read_as_before_and_comes_back(
    daemon: Daemon, driver: Driver, spark_cluster: Cluster, tmp_path: Path
) -> None:
    envelope_ids = emit(daemon, *ENVELOPES)
    daemon.stop()
    asyncio.run(settle(daemon.url, len(ENVELOPES)))
    driver.leave()

    where = ["--to", str(tmp_path / "archive"), "--master", spark_cluster.url, "--conf", "spark.executor.memory=512m"]
    done = xbus(daemon, "archive", "--before", "0d", *where)

    assert f"Archived {len(ENVELOPES)} envelopes with {len(ROWS):,} items in 1 files" in done
    assert items_in_journal(daemon.url) == 0
    assert driver.do(read, source(daemon, partitions="2"))[0] == ROWS
    xbus(daemon, "restore", envelope_ids[1])
    assert items_in_journal(daemon.url) == len(ENVELOPES[1])
    assert driver.do(read, source(daemon, partitions="2"))[0] == ROWS


async def settle(url: str, until: int) -> None:
    async with Journal.open(url, "broker") as journal:
        await settle_all(journal, until, SystemClock().now())


def xbus(daemon: Daemon, *arguments: str) -> str:
    """What a command prints."""
    ran = run(script("xbus"), *arguments, "-c", daemon.config, env=environment(), timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def items_in_journal(url: str) -> int:
    with reading(url) as connection:
        counted = sa.select(sa.func.coalesce(sa.func.sum(model.log_segment.c["items"]), 0))
        return int(connection.execute(counted).scalar_one())
