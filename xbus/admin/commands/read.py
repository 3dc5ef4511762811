"""``xbus read``."""

import time
from itertools import islice
from pathlib import Path

import click

from xbus.admin.arguments import LogStart
from xbus.admin.output import moment, on_one_line, one_json
from xbus.admin.program import config_option, database_url, json_option, secrets_option
from xbus.admin.search import Condition, StreamRequest, read_stream
from xbus.broker.journal.log.slices import Start

FOLLOW_SECONDS = 0.5
"""Seconds between two looks for more. Smaller shows it sooner, and reads the journal more often."""

LIMIT = 20


@click.command()
@config_option
@click.argument("type_name", metavar="TYPE")
@click.option(
    "--from",
    "start",
    type=LogStart(),
    metavar="WHEN",
    help="The start: a place as 1234 or 1234:0:500, a date or time, 1h (ago), oldest, or head. By default oldest, with "
    "--follow head.",
)
@click.option("--follow", is_flag=True, help="At the end of the log, wait for more until you press Ctrl-C.")
@click.option(
    "--where", "conditions", multiple=True, metavar="FIELD=VALUE", help="Only items with this value; may be repeated."
)
@click.option("--key", metavar="TEXT", help="Only events of this partition key, or of this ordering key without one.")
@click.option(
    "--limit", type=click.IntRange(1), help=f"Stop after so many items; by default {LIMIT}, with --follow never."
)
@secrets_option
@json_option("item")
def read(
    config_path: Path | None,
    type_name: str,
    start: Start | None,
    follow: bool,
    conditions: tuple[str, ...],
    key: str | None,
    limit: int | None,
    show_secrets: bool,
    as_json: bool,
) -> None:
    """Read the items of TYPE in the order in which they came, from any place of the log on.

    Items come as readers get them, with the corrections that are for all roles. No reader is needed, and nothing
    remembers what you have read. --where takes conditions as xbus find does. Fields that the type calls secret show as
    ***.
    """
    begin: Start = start or ("head" if follow else "oldest")
    wanted = StreamRequest(type_name, begin, key, [Condition.of(text) for text in conditions], show_secrets)
    most = limit or (None if follow else LIMIT)
    try:
        for found in islice(read_stream(database_url(config_path), wanted, lambda: follow and _pause()), most):
            if as_json:
                click.echo(one_json(found.item.plain()))
            else:
                place, value = ":".join(map(str, found.place)), " ".join(found.item.payload.lines())
                click.echo(on_one_line(f"{place} {moment(found.sealed_at)} {value}"))
    except KeyboardInterrupt:
        if not follow:
            raise


def _pause() -> bool:
    time.sleep(FOLLOW_SECONDS)
    return True
