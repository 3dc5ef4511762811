"""``xbus-spark-worker``: serves a worker role with Spark, until SIGTERM or SIGINT."""

import asyncio
import logging
from pathlib import Path

import click

from spark_worker.items.formats import NAMES, check_schema
from spark_worker.spark.command_options import master_option
from spark_worker.spark.master import parsed_settings
from spark_worker.transform.transforms import Transform, load_function, load_sql
from spark_worker.worker.serving import WorkerOptions, serve_for_ever
from xbus import ending, logs
from xbus.admin.address import back_option, login_and_password, login_option, password_file_option
from xbus.admin.program import config_option
from xbus.config import load
from xbus.config.reaching import reachable
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


@click.command(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@config_option
@login_option("The role's login")
@password_file_option
@click.option("--transform", "function", metavar="MODULE:FUNCTION", help="transform(items, context) -> DataFrame.")
@click.option("--sql", "sql_file", type=click.Path(path_type=Path), metavar="FILE", help="A query over the view items.")
@click.option(
    "--format", "items_format", type=click.Choice(NAMES), default=NAMES[0], show_default=True, help=FORMAT_HELP
)
@click.option("--schema", default="", metavar="DDL", help=SCHEMA_HELP)
@click.option("--order-by", default="", metavar="COLUMN", help=ORDER_HELP)
@click.option("--keep-corrupt", is_flag=True, help="Give items that don't fit to the transform, with column _corrupt.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="For the transform, as context.options.")
@master_option
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")
@click.option("--min-items", type=click.IntRange(1), default=100_000, show_default=True, help=MIN_ITEMS_HELP)
@click.option("--patience", type=click.FloatRange(1), default=60.0, show_default=True, help=PATIENCE_HELP)
@back_option
@click.option("--bind", default="", metavar="URL", help=BIND_HELP)
@click.option(
    "--advertise", default="", metavar="URL", help="With --bind: the address that the broker calls, if it differs."
)
def main(
    config_path: Path | None,
    login: str | None,
    password_file: Path | None,
    function: str | None,
    sql_file: Path | None,
    items_format: str,
    schema: str,
    order_by: str,
    keep_corrupt: bool,
    options: tuple[str, ...],
    master: str,
    conf: tuple[str, ...],
    min_items: int,
    patience: float,
    back_url: str | None,
    bind: str,
    advertise: str,
) -> None:
    """Serve a worker role with Spark: its executors read large events from the journal and write them back."""
    with ending.in_one_line("xbus-spark-worker"):
        config = load(config_path)
        logs.set_up(config.logging)
        check_schema(items_format, schema)
        logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs each connection
        back_url = back_url or reachable(config.zmq.backsocket, "back")
        login, password = login_and_password(login, password_file, back_url)
        chosen = WorkerOptions(
            config=config,
            back_url=back_url,
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
