"""``xbus recipient run``, and the group with the other commands."""

from pathlib import Path

import click

from xbus import logs
from xbus.admin.address import back_option, broker_address
from xbus.admin.bus_file.table_keys import MOST_INSTANCES
from xbus.admin.commands.recipient.instances import Instance, check_addresses, run_instances
from xbus.admin.commands.recipient.loading import load_recipient
from xbus.admin.commands.recipient.roles import attach, detach, list_
from xbus.admin.program import CommandGroup, FiniteRange, config_option
from xbus.admin.secret import login_and_password, login_option, password_file_option
from xbus.config import load_or_default
from xbus.recipient import run
from xbus.recipient.running import ServeOptions


@click.group(cls=CommandGroup)
def recipient() -> None:
    """Run workers and consumers, and show their state."""


for command in (list_, detach, attach):
    recipient.add_command(command)


@recipient.command("run")
@config_option
@click.argument("name", metavar="MODULE:CLASS")
@login_option("The role's login")
@password_file_option
@back_option
@click.option(
    "--bind",
    metavar="URL",
    help="Listen for the broker at this address; * takes any port. By default no port is opened: the broker calls over"
    " the connection that this program makes.",
)
@click.option(
    "--advertise",
    metavar="URL",
    help="With --bind: the address that the broker calls, if it differs; {port} is the port taken.",
)
@click.option(
    "--start-timeout",
    type=FiniteRange(0),
    metavar="SECONDS",
    help="For how long to repeat on_start while it fails, before this ends with 3; by default for ever.",
)
@click.option(
    "--instances",
    type=click.IntRange(1, MOST_INSTANCES),
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="So many processes, which share the envelopes of the role; it needs as many instances in the bus file.",
)
def run_(
    config_path: Path | None,
    name: str,
    login: str | None,
    password_file: Path | None,
    back_url: str | None,
    bind: str | None,
    advertise: str | None,
    start_timeout: float | None,
    instances: int,
) -> None:
    """Run a subclass of Worker or Consumer until SIGTERM or SIGINT.

    Python also looks for the module in the working directory. Of several processes all end as soon as one ends with an
    error.
    """
    kind = load_recipient(name)
    address = broker_address("back", back_url, config_path)
    logs.set_up(load_or_default(config_path).logging)
    login, password = login_and_password(login, password_file, address)
    options: ServeOptions = {}
    if bind is not None:
        options["bind"] = bind
    if advertise is not None:
        options["advertise"] = advertise
    if start_timeout is not None:
        options["start_timeout"] = start_timeout
    if instances == 1:
        run(kind, address, login, password, **options)
        return
    check_addresses(options)
    run_instances(Instance(name, address, login, password, options, config_path), instances)
