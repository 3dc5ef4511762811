"""``xbus recipient run``, and the group with the other commands."""

import importlib
import inspect
import sys
from pathlib import Path

import click

from xbus import logs
from xbus.admin.address import broker_address
from xbus.admin.commands.recipient.roles import attach, detach, list_
from xbus.admin.program import CommandGroup, config_option
from xbus.admin.secret import password_file_option, password_of
from xbus.config import load_or_default
from xbus.errors import ConfigurationError
from xbus.recipient import Recipient, run
from xbus.recipient.running import ServeOptions


@click.group(cls=CommandGroup)
def recipient() -> None:
    """Run workers and consumers, and show their state."""


for command in (list_, detach, attach):
    recipient.add_command(command)


@recipient.command("run")
@config_option
@click.argument("name", metavar="MODULE:CLASS")
@click.option("--login", envvar="XBUS_LOGIN", show_envvar=True, prompt=True, help="The role's login.")
@password_file_option
@click.option(
    "--back", "back_url", metavar="URL", help="The back's address; by default that of the configuration file."
)
@click.option(
    "--bind",
    default="tcp://127.0.0.1:*",
    show_default=True,
    metavar="URL",
    help="The address to listen at; * takes any port.",
)
@click.option(
    "--advertise", metavar="URL", help="The address that the broker calls, if it differs; {port} is the port taken."
)
@click.option(
    "--start-timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="For how long to repeat on_start while it fails, before this ends with 3; by default for ever.",
)
def run_(
    config_path: Path | None,
    name: str,
    login: str,
    password_file: Path | None,
    back_url: str | None,
    bind: str,
    advertise: str | None,
    start_timeout: float | None,
) -> None:
    """Run a subclass of Worker or Consumer until SIGTERM or SIGINT.

    Python also looks for the module in the working directory.
    """
    kind = load_recipient(name)
    address = broker_address("back", back_url, config_path)
    logs.set_up(load_or_default(config_path).logging)
    password = password_of(login, password_file)
    options: ServeOptions = {"bind": bind}
    if advertise is not None:
        options["advertise"] = advertise
    if start_timeout is not None:
        options["start_timeout"] = start_timeout
    run(kind, address, login, password, **options)


def load_recipient(name: str) -> type[Recipient]:
    """Import the class that ``module:Class`` names.

    Raises:
        ConfigurationError: the module or the class does not exist, or it is no recipient.
    """
    module_name, separator, class_name = name.partition(":")
    if not (module_name and separator and class_name):
        raise ConfigurationError(f'"{name}" names no class', "write it as module:Class, such as examples.names:Names")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the module itself lacks another one, its own traceback says so.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f'there is no module "{module_name}"', "run this where it can be imported") from error
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Recipient)):
        raise ConfigurationError(
            f'"{class_name}" in {module_name} is no recipient', "name a subclass of xbus.recipient.Worker or Consumer"
        )
    return found
