"""``xbus config`` writes, checks and shows the configuration of the broker."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from xbus.admin.commands.doctor import problems_in_use
from xbus.admin.output import Output, one_json, table
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, argument, command, option, shown
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.promises import check_promises
from xbus.config import OPTIONS, Config, ConfigReading, Option, is_in, load, read, sample, without_secrets, written
from xbus.ending import NOT_NOW, REFUSED, exit_code
from xbus.errors import ConfigurationError, XbusError

HEADS = ("OPTION", "VALUE", "FROM")

DEFAULT = "default"

FILE_MODE = 0o640
"""Readable for a group: the file may get a password, and the broker seldom runs as the one who writes it."""


@click.group(cls=CommandGroup)
def config() -> None:
    """Write, check and show the configuration."""


@command(config)
def init(file: Path = argument(default=Path("config.ini"))) -> None:
    """Write a configuration file that explains each option, with its default: FILE, by default config.ini.

    An existing file stays as it is.
    """
    text = sample()
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        raise ConfigurationError(f"{file} exists already", "name another file, or move it away") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"{file} can't be written ({reason})", "name another file") from error
    click.echo(f"{file} is written. Edit it, then: xbus config check -c {file}")


@command(config)
def check(
    bus: CommandBus, connect: bool = option("Look at the database, too: whether it answers, and has its tables.")
) -> None:
    """Check the configuration: show everything that is wrong with it, each with its cure.

    Ends with 0 if the broker can use it.
    """
    found = _read(bus.path)
    problems: list[XbusError] = [*found.problems]
    if not problems:
        problems += problems_in_use(found.config)
        problems += _database_problems(found.config) if connect else []
    for note in found.config.notes:
        click.echo(f"note: {note}")
    for problem in problems:
        click.echo(f"{problem} [{problem.code}]", err=True)
    if problems:
        told = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        click.echo(f"xbus: the configuration can't be used: {told} above", err=True)
        click.get_current_context().exit(NOT_NOW if {exit_code(each) for each in problems} == {NOT_NOW} else REFUSED)
    click.echo("The configuration is right.")


def _database_problems(config: Config) -> list[XbusError]:
    try:
        schema.check(config.database.url)
        check_promises(config.database.url)
    except XbusError as error:
        return [error]
    return []


@command(config)
def show(bus: CommandBus, output: Output = shown("option", wide=False)) -> None:
    """Show each option: the value in force, and where it comes from. Passwords are not shown.

    A variable of the environment wins over the file, and the file over the default.
    """
    found = _read(bus.path)
    if found.problems:
        load(bus.path)  # ends here with the first problem
    rows = [_row(option, found) for option in OPTIONS]
    if output.as_json:
        click.echo("\n".join(one_json(_facts(option, row)) for option, row in zip(OPTIONS, rows, strict=True)))
    else:
        click.echo("\n".join(table(HEADS, rows)))


def _read(path: Path | None) -> ConfigReading:
    if path is None and not is_in(os.environ):
        load(path)  # ends here, and says what to name
    return read(path)


def _row(option: Option, found: ConfigReading) -> tuple[str, str, str]:
    value = written(getattr(getattr(found.config, option.section), option.field))
    shown = without_secrets(value) if option.is_secret else value
    return str(option), shown, found.sources.get(option, DEFAULT)


def _facts(option: Option, row: Sequence[str]) -> dict[str, str]:
    _, value, source = row
    return {
        "section": option.section,
        "option": option.name,
        "value": value,
        "from": source,
        "variable": option.variable,
    }
