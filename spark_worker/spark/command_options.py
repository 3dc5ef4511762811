"""Options that commands of ``xbus`` share which run on Spark."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from spark_worker.spark.session import check_master, parsed_settings
from xbus.clock import SystemClock

_AGO = re.compile(r"(\d+(?:\.\d+)?)([dhw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[datetime]):
    """A moment: so long ago, as ``90d``, ``12h`` or ``2w``, or a date or time in ISO 8601, in UTC unless it says so."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if ago := _AGO.fullmatch(value):
            try:
                return SystemClock().now() - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
            except OverflowError:
                self.fail(f"{value} is longer ago than time goes back", param, ctx)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value} is neither like 90d, 12h or 2w nor a date or time like 2026-01-31", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def settings_of(_: click.Context, __: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """The value of ``--conf``."""
    try:
        return parsed_settings(pairs)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def checked_master(_: click.Context, __: click.Parameter, master: str) -> str:
    """The value of ``--master``."""
    try:
        return check_master(master)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    callback=checked_master,
    metavar="URL",
    help="Where Spark runs, as spark://host:7077.",
)
conf_option = click.option("--conf", multiple=True, callback=settings_of, metavar="KEY=VALUE", help="For Spark.")
