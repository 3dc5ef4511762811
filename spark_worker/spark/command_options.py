"""Options that commands of ``xbus`` share which run on Spark."""

import click

from spark_worker.spark.master import check_master, parsed_settings
from xbus.admin.signatures import option


def settings_of(_: click.Context, __: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """Read the value of ``--conf``."""
    try:
        return parsed_settings(pairs)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def checked_master(_: click.Context, __: click.Parameter, master: str | None) -> str | None:
    """Check the value of ``--master``, if there is one."""
    try:
        return None if master is None else check_master(master)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


MASTER = option(
    "Spark's master, such as spark://host:7077.",
    default="local[*]",
    show_default=True,
    callback=checked_master,
    metavar="URL",
)
CONF = option("A setting of Spark.", multiple=True, callback=settings_of, metavar="KEY=VALUE")
