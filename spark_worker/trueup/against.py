"""The data set that the bus is compared with: files, or a table of a database."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_worker.items.failures import brief
from xbus.broker.journal.database.foreign import read_foreign
from xbus.errors import ConfigurationError, JournalError, XbusError

SQL = ("sqlite", "postgresql")
"""The beginnings of URLs that SQLAlchemy reads."""

DRIVERS = {
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}
"""Of JDBC: one that comes by spark.jars is found by its name alone."""

OF_THE_BUS = f"{XbusError.__module__}."
"""Marks an error of our data source in Spark's text."""


@contextmanager
def data_set(spark: SparkSession, address: str, table: str, schema: str) -> Iterator[DataFrame]:
    """Open a data set for the time of the block.

    Args:
        address: a file or folder of Parquet, CSV (with a header) or JSON lines, by its ending, a URI of one, a JDBC
            URL, or an SQLAlchemy URL of SQLite or PostgreSQL.
        table: for the URLs of databases: a table, or a query in brackets.
        schema: its columns in DDL; empty for its own schema, and for text in CSV.

    Raises:
        XbusError: the data set can't be read.
    """
    with tempfile.TemporaryDirectory(prefix="xbus-checksum-") as folder:
        try:
            yield _read(spark, address, table, schema, Path(folder))
        except (PySparkException, Py4JJavaError, pa.ArrowException, OSError) as error:
            if OF_THE_BUS in str(error):
                raise XbusError(
                    f"the items of the bus can't be read ({brief(error)})",
                    "see that --type, --from and --to are right, and that the database runs",
                    code="unreadable_log",
                ) from error
            raise XbusError(
                f"{address.partition('?')[0]} can't be read or compared ({brief(error)})",
                "see that it exists and has the columns that you name",
                code="unreadable_data",
            ) from error


def _read(spark: SparkSession, address: str, table: str, schema: str, folder: Path) -> DataFrame:
    scheme = address.partition(":")[0].partition("+")[0]
    if scheme in ("jdbc", *SQL):
        if not table:
            raise ConfigurationError("a database has more than one table", "name one by --table")
        if scheme == "jdbc":
            reader = spark.read.format("jdbc").option("url", address).option("dbtable", table)
            driver = DRIVERS.get(address.split(":")[1])
            return (reader.option("driver", driver) if driver else reader).load()
        return spark.read.parquet(str(_copied(address, table, folder / "table.parquet")))
    reader = spark.read.schema(schema) if schema else spark.read
    path = address if "://" in address else str(Path(address).absolute())
    match _kind(path):
        case "csv":
            return reader.csv(path, header=True)
        case "json":
            return reader.json(path)
    return reader.parquet(path)


def _kind(path: str) -> str:
    """Choose the kind by the ending, or that of the first file in a folder: ``csv``, ``json`` or ``parquet``."""
    endings = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
    name = path.removesuffix(".gz")
    if Path(path).is_dir():
        files = sorted(file.name for file in Path(path).iterdir() if file.is_file() and file.name[0] not in "._")
        name = files[0].removesuffix(".gz") if files else path
    return endings.get(Path(name).suffix.lower(), "parquet")


def _copied(url: str, table: str, path: Path) -> Path:
    """Copy a table into a file that executors of this machine read."""
    writer: pq.ParquetWriter | None = None
    try:
        for names, rows in read_foreign(url, table):
            columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
            schema = None if writer is None else writer.schema
            page = pa.Table.from_pydict(dict(zip(names, columns, strict=True)), schema=schema)
            writer = writer or pq.ParquetWriter(path, _without_nulls(page).schema)
            writer.write_table(page.cast(writer.schema))
    except JournalError as error:  # which takes every database for that of the bus
        raise type(error)(error.cause, "see that --against and --table are right", code=error.code) from error
    finally:
        if writer is not None:
            writer.close()
    return path


def _without_nulls(page: pa.Table) -> pa.Table:
    """Turn a column of nulls only into text."""
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in page.schema]
    return page.cast(pa.schema(fields))
