"""A data set beside what the bus carried of it, by ``xbus checksum`` on the session of the tests."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from spark_worker.trueup import command
from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD
from tests.support.journal import Scribe, add_small_bus, looking
from tests.support.processes import run, script
from tests.support.spark import SECONDS
from tests.support.spark import environment as spark_environment
from tests.support.spark_log import SparkLog
from xbus.admin.program import Program
from xbus.broker.journal.journal import Journal

Checksum = Callable[..., Result]

ROWS: list[dict[str, Any]] = [{"id": number, "name": f"n{number}", "price": number / 2} for number in range(10)]
"""The data set. The bus lacks the last two, carried one wrongly, one first wrongly and then rightly, and
one that is not here."""

SCHEMA = "id BIGINT, name STRING, price DOUBLE"


@pytest.fixture
def config(sqlite_url: str, tmp_path: Path) -> Path:
    """Of a journal with what the bus carried."""
    items: list[bytes] = [json.dumps(row).encode() for row in ROWS[:8]]
    items[3] = json.dumps({**ROWS[3], "name": "wrong"}).encode()
    first = [json.dumps({**ROWS[4], "price": 1}).encode(), b"no json"]
    items.append(json.dumps({"id": 77, "name": "only here", "price": 0.5}).encode())

    async def put() -> None:
        async with Journal.open(sqlite_url, "broker") as journal:
            scribe = await Scribe.of(journal)
            await scribe.put(first)
            await scribe.put(items[:5], items[5:])

    with looking(sqlite_url) as connection:
        add_small_bus(connection)
    asyncio.run(put())
    path = tmp_path / "config.ini"
    path.write_text(f"[database]\nsqlalchemy.dburi = {sqlite_url}\n[zmq]\nfrontsocket = tcp://127.0.0.1:1\n")
    return path


@pytest.fixture
def checksum(spark: SparkSession, config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checksum]:
    run = on_session(spark, config, monkeypatch)
    yield lambda *arguments: run("--type", "notes", "--format", "json", *arguments)
    spark.catalog.clearCache()


@pytest.fixture
def log(spark: SparkSession, sqlite_url: str, start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch) -> SparkLog:
    """A bus with a broker, whose emitter may emit what is missing."""
    monkeypatch.setenv("XBUS_PASSWORD", PASSWORD)
    SparkLog.prepare(sqlite_url)
    return SparkLog(start_daemon(sqlite_url), spark)


def on_session(spark: SparkSession, config: Path, monkeypatch: pytest.MonkeyPatch) -> Checksum:
    """``xbus checksum`` with that configuration, on the session of the tests."""
    monkeypatch.setattr(command, "open_session", lambda *_: spark)
    monkeypatch.setattr(command, "close_session", lambda _: None)
    program = Program(commands={"checksum": command.checksum})
    return lambda *arguments: CliRunner().invoke(program, ["checksum", "-c", str(config), *arguments])


def verdict(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, (result.output, result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


WHOLE = {
    "total": 10, "correct": 7, "incorrect": 1, "missing": 2, "per_cent": 70.0, "extra": 1, "unreadable": 1,
    "emitted": 0,
}  # fmt: skip


def lines(path: Path) -> list[Any]:
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=str)


def test_files(checksum: Checksum, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "all.csv").write_text(
        "id,name,price\n" + "".join(f"{r['id']},{r['name']},{r['price']}\n" for r in ROWS)
    )
    spark.createDataFrame([tuple(row.values()) for row in ROWS], SCHEMA).write.parquet(str(tmp_path / "all"))
    key = ("--key", "id", "--json")

    parquet = checksum("--against", str(tmp_path / "all"), *key,
                       "--missing", str(tmp_path / "missing"), "--incorrect", str(tmp_path / "incorrect"))  # fmt: skip

    assert verdict(parquet) == WHOLE
    assert lines(tmp_path / "missing") == [{"id": 8}, {"id": 9}]
    assert lines(tmp_path / "incorrect") == [{"id": 3}]
    assert verdict(checksum("--against", str(tmp_path / "all.jsonl"), *key)) == WHOLE
    assert verdict(checksum("--against", str(tmp_path / "all.csv"), *key, "--schema", SCHEMA)) == WHOLE
    names = verdict(checksum("--against", str(tmp_path / "all.jsonl"), *key, "--columns", "price"))
    assert (names["incorrect"], names["missing"]) == (0, 2)


def test_a_table(checksum: Checksum, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE things (id INTEGER, name TEXT, price REAL)")
        connection.executemany("INSERT INTO things VALUES (:id, :name, :price)", ROWS)
    connection.close()
    where = ("--against", f"sqlite:///{tmp_path / 'other.db'}", "--key", "id", "--json")

    assert verdict(checksum(*where, "--table", "things")) == WHOLE
    assert verdict(checksum(*where, "--table", "(SELECT * FROM things WHERE id > 3)"))["missing"] == 2
    assert "no such table" in checksum(*where, "--table", "thongs").output
    assert "name one by --table" in checksum(*where).output


JARS = "org/postgresql/postgresql/*/postgresql-*.jar"
"""Where Maven keeps PostgreSQL's driver of JDBC: no package of Python brings one."""


def test_a_table_by_jdbc(config: Path, postgres_url: str) -> None:
    jars = sorted((Path.home() / ".m2/repository").glob(JARS))
    if not jars:
        pytest.skip(
            "Maven has no driver of PostgreSQL here: mvn dependency:get -Dartifact=org.postgresql:postgresql:42.7.13"
        )
    with looking(postgres_url) as connection:
        connection.exec_driver_sql("CREATE TABLE things (id BIGINT, name TEXT, price DOUBLE PRECISION)")
        connection.execute(sa.text("INSERT INTO things VALUES (:id, :name, :price)"), ROWS)
    url = sa.make_url(postgres_url)
    address = f"jdbc:postgresql://{url.host}:{url.port}/{url.database}?user={url.username}&password={url.password}"
    where = ("checksum", "-c", config, "--type", "notes", "--format", "json", "--key", "id", "--json")

    done = run(
        *(script("xbus"), *where, "--against", address, "--table", "things", "--master", "local[2]"),
        *("--conf", f"spark.jars={jars[-1]}"),
        env=spark_environment(),
        timeout=SECONDS,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == WHOLE


def test_what_is_missing_is_emitted(
    spark: SparkSession, log: SparkLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.emit([json.dumps(row).encode() for row in ROWS[:8]])
    (tmp_path / "all.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    run = on_session(spark, log.daemon.config, monkeypatch)
    where = ("--type", "orders", "--against", str(tmp_path / "all.jsonl"), "--key", "id", "--json", "--format", "json")

    assert verdict(run(*where))["missing"] == 2
    first = verdict(run(*where, "--emit-missing", "--login", "emitter_1", "--url", log.daemon.front))
    again = verdict(run(*where, "--emit-missing", "--login", "emitter_1", "--url", log.daemon.front))

    assert (first["missing"], first["emitted"]) == (2, 2)
    assert (again["missing"], again["incorrect"], again["per_cent"], again["emitted"]) == (0, 0, 100.0, 0)


def test_values_of_the_sdk_need_no_format(
    spark: SparkSession, log: SparkLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [{**row, "day": f"2026-01-{row['id'] + 1:02}", "at": f"2026-01-01T{row['id']:02}:00:00Z"} for row in ROWS]
    log.emit(days[:8])
    types = f"{SCHEMA}, day STRING, at STRING"
    rows = spark.createDataFrame([tuple(row.values()) for row in days], types)
    rows.selectExpr("id", "name", "price", "DATE(day) AS day", "TIMESTAMP(at) AS at").write.parquet(
        str(tmp_path / "all")
    )
    run = on_session(spark, log.daemon.config, monkeypatch)
    where = ("--type", "orders", "--against", str(tmp_path / "all"), "--key", "id", "--json")

    found = verdict(run(*where))
    refused = run(*where, "--format", "json", "--emit-missing", "--login", "emitter_1", "--url", log.daemon.front)

    assert (found["correct"], found["missing"], found["unreadable"]) == (8, 2, 0)
    assert (refused.exit_code, "--format" in refused.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--key", "nothing"), "has no column nothing"),
        (("--key", "id", "--columns", "nothing"), "has no column nothing"),
        (("--key", "kind"), "rows of the data set have the key kind=a"),
    ],
)
def test_what_can_not_be_compared(checksum: Checksum, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    (tmp_path / "two.jsonl").write_text('{"id": 1, "kind": "a"}\n{"id": 2, "kind": "a"}\n')

    done = checksum("--against", str(tmp_path / "two.jsonl"), *arguments)

    assert done.exit_code == 1
    assert told in done.output


def test_a_file_that_is_not_there(checksum: Checksum, tmp_path: Path) -> None:
    done = checksum("--against", str(tmp_path / "nothing.parquet"), "--key", "id")
    assert (done.exit_code, "can't be read or compared" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--type", "nothing"), "the items of the bus can't be read (Refused: there is no event type 'nothing'"),
        (("--from", "soon"), "option from: 'soon' is neither a position"),
    ],
)
def test_what_is_wrong_with_the_bus_is_not_said_of_the_data(
    checksum: Checksum, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "one.jsonl").write_text('{"id": 1}\n')

    done = checksum("--against", str(tmp_path / "one.jsonl"), "--key", "id", *arguments)

    assert done.exit_code == 1
    assert told in done.output
