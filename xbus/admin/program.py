"""The frame of all commands: it reads the configuration, and turns an error into a line and an exit code."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from xbus import ending
from xbus.admin import plugins
from xbus.broker.journal.database import schema
from xbus.config import FILE_VARIABLE, Config, load

Command = TypeVar("Command", bound=Callable[..., Any])


class Careful(click.Command):
    """A command that does harm where somebody follows a hint: it proposes no option for one that it doesn't know."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.NoSuchOption(error.option_name, ctx=error.ctx) from None


class Program(click.Group):
    """A group of commands that reports any error of the bus in one line, with its cause and next step.

    Beside its own it has the commands that other packages bring. It imports each at its first use.

    Args:
        own: the modules of its own commands in ``xbus.admin.commands``; each has a command of the same name.
    """

    def __init__(self, *args: Any, own: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own = {module.replace("_", "-"): module for module in own}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._own, *super().list_commands(ctx), *plugins.found()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = self._own.get(cmd_name)
        if module is not None:
            command: click.Command = getattr(import_module(f"xbus.admin.commands.{module}"), module)
            return command
        added = super().get_command(ctx, cmd_name)
        if added is not None:
            return added
        entry = plugins.found().get(cmd_name)
        return None if entry is None else plugins.load(entry)

    def invoke(self, ctx: click.Context) -> object:
        with ending.in_one_line("xbus"):
            return super().invoke(ctx)


config_option = click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar=FILE_VARIABLE,
    show_envvar=True,
    metavar="FILE",
    help="The broker's configuration file.",
)


def _not_blank(_: click.Context, __: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("say why")
    return text


reason_option = click.option("--reason", required=True, callback=_not_blank, metavar="TEXT", help="Why; it is kept.")


limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at the most."
)


def json_option(for_each: str = "") -> Callable[[Command], Command]:
    """Add ``--json``: one object, or one for each of those."""
    objects = f"one object for each {for_each}" if for_each else "one object"
    return click.option("--json", "as_json", is_flag=True, help=f"Write JSON: {objects}.")


def load_config(path: Path | None) -> Config:
    """Load the broker's configuration, from a file and from the environment.

    Raises:
        ConfigurationError: neither names anything, or it can't be used.
    """
    return load(path)


def database_url(path: Path | None) -> str:
    """Give the address of the broker's database, after a check that it has the schema of this program.

    Raises:
        ConfigurationError: no file is named, or it is invalid.
        SchemaError: the schema is missing, older or newer.
        JournalUnavailable: the database can't be reached.
    """
    url = load_config(path).database.url
    schema.check(url)
    return url
