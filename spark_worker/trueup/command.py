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
from spark_worker.spark.command_options import CONF, MASTER
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
from xbus.admin.address import PASSWORD_FILE, CommandLogin
from xbus.admin.output import Output, facts, one_json
from xbus.admin.signatures import CommandBus, command, option, shown
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


@command()
def checksum(
    bus: CommandBus,
    type_name: str = option("The event type that carries the data.", None, "--type", required=True, metavar="NAME"),
    against: str = option(AGAINST_HELP, required=True, metavar="PLACE"),
    table: str = option(TABLE_HELP, default="", metavar="NAME"),
    keys: tuple[str, ...] = option(
        "The columns that identify a row: a,b.",
        None,
        "--key",
        required=True,
        multiple=False,
        callback=_names,
        metavar="COLUMNS",
    ),
    columns: tuple[str, ...] = option(COLUMNS_HELP, multiple=False, callback=_names, metavar="COLUMNS"),
    items_format: str = option(FORMAT_HELP, click.Choice(FORMATS), "--format", default=FORMATS[0], show_default=True),
    schema: str = option(SCHEMA_HELP, default="", metavar="DDL"),
    begin: str = option("From a position or a time on.", None, "--from", default="earliest", metavar="PLACE"),
    end: str = option("Up to a position, or before a time.", None, "--to", default="latest", metavar="PLACE"),
    missing: Path | None = option("Write missing keys, as JSON lines."),
    incorrect: Path | None = option("Write incorrect keys, as JSON lines."),
    emit_missing: bool = option("Emit the missing rows, as one envelope."),
    login: str | None = option("The emitter's login.", envvar="XBUS_LOGIN", show_envvar=True, metavar="NAME"),
    password_file: Path | None = PASSWORD_FILE,
    url: str | None = option("The front's address; by default that of the configuration file."),
    master: str = MASTER,
    conf: dict[str, str] = CONF,
    output: Output = shown(wide=False),
) -> None:
    """Compare a data set with the items that the bus carried: count missing, incorrect and correct rows.

    A row and an item belong together if they have the same key. If several items have one key, the last one counts.
    """
    bus.check()
    emitter = _emitter(emit_missing, CommandLogin("front", login, password_file, url, bus.path))
    session = open_session(master, conf, "xbus checksum")
    try:
        with data_set(session, against, table, schema) as data:
            names = [*keys, *check_columns(data, keys, columns)]
            items = _items(session, bus.path, type_name, begin, end)
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
    click.echo(one_json({**asdict(verdict), "emitted": sent}) if output.as_json else "\n".join(_told(verdict, sent)))


def _items(session: SparkSession, config_path: Path | None, type_name: str, begin: str, end: str) -> DataFrame:
    reader = session.read.format("xbus").option("eventType", type_name).option("from", begin).option("to", end)
    if config_path is not None:
        reader = reader.option("config", os.path.abspath(config_path))
    return reader.option("columns", f"position,event_id,index,{DATA}").load()


def _emitter(wanted: bool, way: CommandLogin) -> Emitter | None:
    """Make the emitter of the missing rows, so that a wrong option is reported before Spark starts."""
    if not wanted:
        return None
    if way.login is None:
        raise click.UsageError("--emit-missing needs --login")
    return way.emitter()


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
