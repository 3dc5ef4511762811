"""``xbus top``."""

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path

import click

from xbus.admin.output import Form, Output
from xbus.admin.program import config_option, database_url
from xbus.admin.top import BusLook, Rates, overview
from xbus.admin.watching import show_again
from xbus.admin.why.asking import RunningBroker
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.operations.roles import list_roles
from xbus.clock import SystemClock


@click.command()
@config_option
def top(config_path: Path | None) -> None:
    """Show the bus as it works: rates, lag, health, and what is parked.

    On a terminal the command shows it anew every 2 seconds, until you press Ctrl-C. Elsewhere it writes one look, which
    has no rates yet.
    """
    url, broker, rates, clock = database_url(config_path), RunningBroker(config_path), Rates(), SystemClock()

    def show() -> None:
        now = clock.now()
        with reading(url) as connection:
            types, roles = count_types(connection, now - timedelta(hours=1)), list_roles(connection)
        front, back = asyncio.run(broker.health_of_both())
        delivered = broker.delivered([role.role_id for role in roles if role.kind == "consumer"]) if back else None
        look = BusLook(now, types, roles, {"front": front, "back": back}, delivered or {})
        rates.note(clock.monotonic(), look.counts)
        click.echo("\n".join(overview(look, rates, Output.of(Form.USUAL))))

    if sys.stdout.isatty():
        show_again(show, sys.stdout, time.sleep)
    else:
        show()
