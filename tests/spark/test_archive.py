"""``xbus archive`` and ``xbus restore`` as they are called, and files made by executors."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import sqlalchemy as sa
from pyspark.sql import SparkSession

from spark_worker.archive.archiver import Archiver, FilePlanner
from spark_worker.archive.command import on_spark
from spark_worker.archive.reading import read_items
from spark_worker.archive.run import begun
from tests.support.journal import Scribe, add_small_bus, looking, settle_all
from tests.support.spark import SECONDS
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.archive.reading import archived_files
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import read_type_id
from xbus.broker.journal.retention.rules import sealed_before
from xbus.broker.journal.writes import SealReceipt
from xbus.clock import SystemClock
from xbus.ids import Ids


def fill(url: str) -> list[SealReceipt]:
    """Settled envelopes of two types."""

    async def put() -> list[SealReceipt]:
        async with Journal.open(url, "broker") as journal:
            scribe = await Scribe.of(journal)
            receipts = [await scribe.put([b"%d" % i for i in range(1000)], type_name="flights") for _ in range(3)]
            receipts.append(await scribe.put([b"note"]))
            await settle_all(journal, len(receipts))
        return receipts

    with looking(url) as connection:
        add_small_bus(connection)
    return asyncio.run(put())


def xbus(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("xbus")), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)


def test_executors_make_the_files(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    fill(database_url)
    clock, ids = SystemClock(), Ids()
    with begun(database_url, clock, ids) as run:
        archiver = Archiver(run, FilePlanner(str(tmp_path / "a"), ids), on_spark(spark, database_url), clock)
        report = archiver.archive(sealed_before(datetime.now(UTC)))

    assert (report.envelopes, report.items, report.files) == (4, 3001, 2)
    with reading(database_url) as connection:
        type_id = read_type_id(connection, "flights")
        assert type_id is not None
        [file] = archived_files(connection, type_id, 1, 10)
    assert (file.positions, file.items) == ((2, 3), 2000)
    batches = list(read_items(file, ("data", "index", "position")))
    assert batches[0].schema.names == ["position", "index", "data"]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["position"], row["index"], row["data"]) for row in rows] == [
        (position, index, b"%d" % index) for position in (2, 3) for index in range(1000)
    ]
    # Anybody's Spark reads the folder.
    counts = spark.read.parquet(str(tmp_path / "a")).groupBy("event_type").count().collect()
    assert {row["event_type"]: row["count"] for row in counts} == {"flights": 3000, "notes": 1}


def test_the_commands(sqlite_url: str, tmp_path: Path) -> None:
    receipts = fill(sqlite_url)
    config = tmp_path / "config.ini"
    config.write_text(f"[database]\nsqlalchemy.dburi = {sqlite_url}\n[journal]\nkeep_settled_days = 0\n")
    where = ("-c", str(config))

    done = xbus("archive", *where, "--before", "90d", "--to", str(tmp_path / "a"), "--master", "local[2]", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["envelopes"], told["items"], told["files"]) == (4, 3001, 2)
    shown = xbus("envelope", "show", str(receipts[0].envelope_id), *where).stdout
    assert "archived" in shown
    assert "event_type=flights" in shown

    restored = xbus("restore", str(receipts[0].envelope_id), *where)

    assert restored.returncode == 0, restored.stderr
    with reading(sqlite_url) as connection:
        assert connection.execute(sa.select(sa.func.sum(model.log_segment.c["items"]))).scalar_one() == 1000
    again = xbus("restore", str(receipts[0].envelope_id), *where)
    assert again.returncode == 1
    assert "is in the journal, not in an archive" in again.stderr
    assert xbus("restore", str(uuid.uuid4()), *where).returncode == 1


def test_killed_in_the_midst_of_its_job(spark: SparkSession, sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url)
    config = tmp_path / "config.ini"
    config.write_text(f"[database]\nsqlalchemy.dburi = {sqlite_url}\n[journal]\nkeep_settled_days = 0\n")
    before = carried(spark, config)
    assert sum(before.values()) == 3000

    written = tmp_path / "written"
    arguments = ["archive", "-c", str(config), "--before", "90d", "--to", str(tmp_path / "a"), "--master", "local[2]"]
    command = [sys.executable, "-c", STAYS_AT_IT, str(written), *arguments]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            wait_until(lambda: written.exists() or process.poll() is not None, "a file is written", timeout=SECONDS)
            assert process.poll() is None, "it does not end by itself"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert count(sqlite_url, sa.select(sa.func.count()).select_from(model.archive_file)) == 2

    assert carried(spark, config) == before
    clock, ids = LaterClock(), Ids()
    with begun(sqlite_url, clock, ids) as run:
        archiver = Archiver(run, FilePlanner(str(tmp_path / "a"), ids), on_spark(spark, sqlite_url), clock)
        archiver.archive(sealed_before(datetime.now(UTC)))

    assert carried(spark, config) == before
    assert count(sqlite_url, sa.select(sa.func.count()).select_from(model.log_segment)) == 0
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in files) == 3001


STAYS_AT_IT = """
import sys, time
from pathlib import Path
from spark_worker.archive import command
from spark_worker.archive.copying import copy_file
from xbus.admin.cli import main

written = sys.argv.pop(1)

def copy_and_stay(url, plan):
    copy_file(url, plan)
    Path(written).touch()
    time.sleep(3600)

command.copy_file = copy_and_stay
main()
"""
"""``xbus``, whose archive is in the midst of its job as soon as a first file is written, for as long as it is let."""


class LaterClock(SystemClock):
    """By so much that leases of now are over."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=1)


def carried(spark: SparkSession, config: Path) -> dict[tuple[int, int, bytes], int]:
    """How often the source has each flight: by position, index and item."""
    reader = spark.read.format("xbus").option("config", str(config)).option("eventType", "flights")
    rows = reader.load().select("position", "index", "data").collect()
    return Counter((row["position"], row["index"], bytes(row["data"])) for row in rows)


def count(url: str, statement: sa.Select[Any]) -> int:
    with reading(url) as connection:
        return int(connection.execute(statement).scalar_one())
