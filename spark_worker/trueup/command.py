"""``xbus checksum``."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_worker.items.columns import DATA
from spark_worker.items.formats import NAMES, Format, make_format
from spark_worker.spark.command_options import conf_option, master_option
from spark_worker.spark.session import close_session, open_session
from spark_worker.trueup.against import data_set
from spark_worker.trueup.comparing import (
    FAULT,
    INCORRECT,
    MISSING,
    Verdict,
    check_columns,
    check_readable,
    compare,
    count,
    parse_items,
)
from xbus.admin.address import broker_address, command_emitter, password_file_option, password_of
from xbus.admin.output import facts, one_json
from xbus.admin.program import config_option, database_url, json_option
from xbus.emitter import Emitter
from xbus.errors import XbusError

AGAINST_HELP = "A file or folder of Parquet, CSV or JSON lines, a JDBC URL, or a URL of SQLite or PostgreSQL."
TABLE_HELP = "For the URL of a database: a table, or a query in brackets."
SCHEMA_HELP = "The columns of items, and of a data set in CSV or JSON, in DDL; by default those of the data set."
COLUMNS_HELP = "The columns to compare; by default all but the key."
FORMATS = tuple(name for name in NAMES if name != "bytes")
FORMAT_HELP = "The format of items; the SDK and xbus emit write values as msgpack."


def _names(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise click.BadParameter("name a column")
    return names


@click.command()
@config_option
@click.option("--type", "type_name", required=True, metavar="NAME", help="The event type that carries the data.")
@click.option("--against", required=True, metavar="PLACE", help=AGAINST_HELP)
@click.option("--table", default="", metavar="NAME", help=TABLE_HELP)
@click.option(
    "--key", "keys", required=True, callback=_names, metavar="COLUMNS", help="The columns that identify a row: a,b."
)
@click.option("--columns", callback=_names, metavar="COLUMNS", help=COLUMNS_HELP)
@click.option(
    "--format", "items_format", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help=FORMAT_HELP
)
@click.option("--schema", default="", metavar="DDL", help=SCHEMA_HELP)
@click.option("--from", "begin", default="earliest", metavar="PLACE", help="From a position or a time on.")
@click.option("--to", "end", default="latest", metavar="PLACE", help="Up to a position, or before a time.")
@click.option("--missing", type=click.Path(path_type=Path), metavar="FILE", help="Write missing keys, as JSON lines.")
@click.option(
    "--incorrect", type=click.Path(path_type=Path), metavar="FILE", help="Write incorrect keys, as JSON lines."
)
@click.option("--emit-missing", is_flag=True, help="Emit the missing rows, as one envelope.")
@click.option("--login", envvar="XBUS_LOGIN", show_envvar=True, metavar="NAME", help="The emitter's login.")
@password_file_option
@click.option("--url", help="The front's address; by default that of the configuration file.")
@master_option
@conf_option
@json_option()
def checksum(
    config_path: Path | None,
    type_name: str,
    against: str,
    table: str,
    keys: tuple[str, ...],
    columns: tuple[str, ...],
    items_format: str,
    schema: str,
    begin: str,
    end: str,
    missing: Path | None,
    incorrect: Path | None,
    emit_missing: bool,
    login: str | None,
    password_file: Path | None,
    url: str | None,
    master: str,
    conf: dict[str, str],
    as_json: bool,
) -> None:
    """Compare a data set with the items that the bus carried: count missing, incorrect and correct rows.

    A row and an item belong together if they have the same key. If several items have one key, the last one counts.
    """
    database_url(config_path)
    emitter = _emitter(emit_missing, login, password_file, url, config_path)
    session = open_session(master, conf, "xbus checksum")
    try:
        with data_set(session, against, table, schema) as data:
            names = [*keys, *check_columns(data, keys, columns)]
            items = _items(session, config_path, type_name, begin, end)
            carried = parse_items(items, data, names, items_format, schema).cache()
            compared = compare(data, carried, keys, names[len(keys) :]).cache()
            verdict = count(compared, carried)
            check_readable(verdict)
            for path, fault in ((missing, MISSING), (incorrect, INCORRECT)):
                if path is not None:
                    _write_keys(compared.where(sf.col(FAULT) == fault), keys, path)
            sent = 0
            if emitter is not None and verdict.missing:
                sent = _emit(emitter, type_name, compared, data, items_format)
    finally:
        close_session(session)
    click.echo(one_json({**asdict(verdict), "emitted": sent}) if as_json else "\n".join(_told(verdict, sent)))


def _items(session: SparkSession, config_path: Path | None, type_name: str, begin: str, end: str) -> DataFrame:
    reader = session.read.format("xbus").option("eventType", type_name).option("from", begin).option("to", end)
    if config_path is not None:
        reader = reader.option("config", os.path.abspath(config_path))
    return reader.option("columns", f"position,event_id,index,{DATA}").load()


def _emitter(
    wanted: bool, login: str | None, password_file: Path | None, url: str | None, config_path: Path | None
) -> Emitter | None:
    """Make the emitter of the missing rows, so that a wrong option is reported before Spark starts."""
    if not wanted:
        return None
    if login is None:
        raise click.UsageError("--emit-missing needs --login")
    return command_emitter(broker_address("front", url, config_path), login, password_of(login, password_file))


def _write_keys(found: DataFrame, keys: tuple[str, ...], path: Path) -> None:
    """Write one object per line."""
    lines = found.select(sf.to_json(sf.struct(*(f"`{key}`" for key in keys)), {"ignoreNullFields": "false"}))
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{row[0]}\n" for row in lines.toLocalIterator())
    except OSError as error:
        raise XbusError(
            f"{path} can't be written ({error.strerror})", "name another file", code="unwritable_file"
        ) from error


def _emit(emitter: Emitter, type_name: str, compared: DataFrame, data: DataFrame, items_format: str) -> int:
    """Send the missing rows as they are in the data set, and count them."""
    fields = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in data.schema)
    rows = _encoded(make_format(items_format, fields), compared.where(sf.col(FAULT) == MISSING).select(data.columns))
    sent = 0
    with emitter, emitter.envelope() as envelope, envelope.event(type_name) as event:
        for item in rows:
            event.send(item)
            sent += 1
    return sent


def _encoded(items_format: Format, rows: DataFrame) -> Iterator[bytes]:
    return (bytes(row[DATA]) for row in items_format.encode(rows).toLocalIterator())


def _told(verdict: Verdict, sent: int) -> Iterator[str]:
    yield from facts(
        {
            "rows": verdict.total,
            "correct": verdict.correct,
            "incorrect": verdict.incorrect,
            "missing": verdict.missing,
            "per cent correct": f"{verdict.per_cent:g}",
            "only on the bus": verdict.extra,
            "unreadable items": verdict.unreadable,
            "emitted": sent or None,
        }
    )
