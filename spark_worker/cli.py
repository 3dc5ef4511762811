"""``xbus-spark-worker``: serves a worker role with Spark, until SIGTERM or SIGINT."""

import asyncio
import logging
from pathlib import Path

import click

from spark_worker.items.formats import NAMES, check_schema
from spark_worker.spark.command_options import MASTER
from spark_worker.spark.master import parsed_settings
from spark_worker.transform.transforms import Transform, load_function, load_sql
from spark_worker.worker.serving import WorkerOptions, serve_for_ever
from xbus import ending, logs
from xbus.admin.address import CommandLogin, way_to
from xbus.admin.signatures import CommandBus, command, option
from xbus.errors import ConfigurationError

EXIT_CODES = (
    "Ends with 0 when it was told to stop, with 1 when something must be mended first, which a line on standard error "
    "names with its cure, with 2 when the command line is wrong, with 3 when Spark does not start on this machine. A "
    "cluster that is away is waited for."
)

FORMAT_HELP = "The format of items; the SDK and xbus emit write values as msgpack."
SCHEMA_HELP = "The columns of incoming items, in DDL: 'id INT NOT NULL, name STRING'. Not for bytes."
ORDER_HELP = "The column to order the output by, if the transform drops _index."
MIN_ITEMS_HELP = "Spark itself reads events of so many items from the journal."
BIND_HELP = (
    "Listen for the broker at this address. By default no port is opened: the broker calls over the connection that"
    " this program makes."
)
PATIENCE_HELP = "Seconds without any executor after which the cluster counts as gone."


@command(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
def main(
    bus: CommandBus,
    way: CommandLogin = way_to("back", "The role's login"),
    function: str | None = option(
        "transform(items, context) -> DataFrame.", None, "--transform", metavar="MODULE:FUNCTION"
    ),
    sql_file: Path | None = option("A query over the view items.", None, "--sql"),
    items_format: str = option(FORMAT_HELP, click.Choice(NAMES), "--format", default=NAMES[0], show_default=True),
    schema: str = option(SCHEMA_HELP, default="", metavar="DDL"),
    order_by: str = option(ORDER_HELP, default="", metavar="COLUMN"),
    keep_corrupt: bool = option("Give items that don't fit to the transform, with column _corrupt."),
    options: tuple[str, ...] = option("For the transform, as context.options.", None, "--option", metavar="NAME=VALUE"),
    master: str = MASTER,
    conf: tuple[str, ...] = option("A setting of Spark.", metavar="KEY=VALUE"),
    min_items: int = option(MIN_ITEMS_HELP, click.IntRange(1), default=100000, show_default=True),
    patience: float = option(PATIENCE_HELP, click.FloatRange(1), default=60.0, show_default=True),
    bind: str = option(BIND_HELP, default="", metavar="URL"),
    advertise: str = option(
        "With --bind: the address that the broker calls, if it differs.", default="", metavar="URL"
    ),
) -> None:
    """Serve a worker role with Spark: its executors read large events from the journal and write them back."""
    with ending.in_one_line("xbus-spark-worker"):
        config = bus.config
        logs.set_up(config.logging)
        check_schema(items_format, schema)
        logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs each connection
        login, password = way.login_and_password()
        chosen = WorkerOptions(
            config=config,
            back_url=way.address,
            login=login,
            password=password,
            transform=chosen_transform(function, sql_file),
            items_format=items_format,
            schema=schema,
            order_by=order_by,
            keep_corrupt=keep_corrupt,
            options=pairs("--option", options),
            master=master,
            settings=pairs("--conf", conf),
            min_items=min_items,
            patience=patience,
            bind=bind,
            advertise=advertise,
        )
        asyncio.run(serve_for_ever(chosen))


def chosen_transform(function: str | None, sql_file: Path | None) -> Transform:
    """Load the transform that the command line names.

    Raises:
        ConfigurationError: neither or both of the two are given, or the named one does not exist.
    """
    if (function is None) == (sql_file is None):
        raise ConfigurationError("there must be one transform", "give either --transform or --sql")
    return load_sql(sql_file) if sql_file is not None else load_function(function or "", Path.cwd())


def pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """Read ``key=value`` of an option that may be given several times.

    Raises:
        ConfigurationError: one is not of that form.
    """
    try:
        return parsed_settings(given)
    except ValueError as error:
        raise ConfigurationError(f"{option} {error}", "write it as key=value") from error


if __name__ == "__main__":
    main()
